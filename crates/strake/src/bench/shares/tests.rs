use super::*;

fn figure(name: &str, level: &str) -> &'static Figure {
    let mut all = FIGURES.iter();
    all.find(|figure| figure.name == name && figure.array.level == level)
        .unwrap()
}

/// Requests a second that CM7 drives allow.
fn of_cm7(name: &str, level: &str, block_bytes: u64) -> f64 {
    let model = PaceModel::parse("cm7").unwrap();
    allowed(figure(name, level), model, block_bytes).unwrap()
}

fn near(seen: f64, expected: f64) {
    assert!(
        (seen / expected - 1.0).abs() < 1e-3,
        "{seen}, not {expected}"
    );
}

#[test]
fn what_drives_allow_is_what_the_published_systems_were_measured_by() {
    // Ten drives' reads are 27 M; of five half of that.
    near(of_cm7("random read, 4 KiB", "5", 4096), 5.0 * 2.7e6);
    // Two reads and two writes each.
    let each_s = 2.0 / 2.7e6 + 2.0 / 0.7e6;
    near(of_cm7("random write, 4 KiB", "5", 4096), 5.0 / each_s);
    // Four of five drives' writes are data; of twelve, ten.
    let stripes = of_cm7("whole-stripe write", "5", 256 << 10);
    near(stripes * (256 << 10) as f64, 4.0 * 6.75e9);
    let stripes = of_cm7("whole-stripe write", "6", 640 << 10);
    near(stripes * (640 << 10) as f64, 10.0 * 6.75e9);
    let stripes = of_cm7("whole-stripe write", "50", 1 << 20);
    near(stripes * (1 << 20) as f64, 16.0 * 6.75e9);
    let reads = of_cm7("sequential read, 1 MiB", "5", 1 << 20);
    near(reads * (1 << 20) as f64, 5.0 * 14e9);
    // With one of five gone all four are read for each row.
    let reads = of_cm7("degraded sequential read, 1 MiB", "5", 1 << 20);
    near(reads * (1 << 20) as f64, 4.0 * 14e9);
    // One block in five costs four reads.
    let reads = of_cm7("degraded random read, 4 KiB", "5", 4096);
    near(reads, 4.0 * 2.7e6 / (0.8 + 0.2 * 4.0));
}

#[test]
fn every_figure_is_an_array_that_can_be() {
    for figure in &FIGURES {
        let rig = array("cm7", &figure.array, figure.missing, figure.policy).unwrap();
        let data = rig.stripe_bytes / (figure.array.strip_kib << 10);
        let members = figure.array.members as u64;
        assert!(
            data < members && rig.volume_bytes >= SPAN_BYTES,
            "{figure:?}"
        );
    }
}
