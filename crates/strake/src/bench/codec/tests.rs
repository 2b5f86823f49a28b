use super::*;

#[test]
fn the_median_is_the_middle_one() {
    let spread = Spread::new(vec![3.0, 1.0, 9.0, 2.0, 4.0]);
    assert_eq!(
        (spread.least, spread.median, spread.greatest),
        (1.0, 3.0, 9.0)
    );
}

/// Every case runs, in cache and over the ring, and its row has what a script reads.
#[test]
fn every_case_makes_a_row_with_its_ceiling_and_its_peer() {
    let mut memory = Memory::new(64).unwrap();
    let mut cases = cases::ours();
    let ours = cases.len();
    if let Ok(isal) = strake_isal::Isal::load() {
        cases.extend(peer::isal(&isal));
    }
    let sample = |case: &mut Case| vec![memory.run(case, 3).as_secs_f64(); 5];
    let samples = cases.iter_mut().map(sample).collect();
    let rows = rows(&cases, samples);
    assert_eq!(rows.len(), ours);
    let peers: usize = rows.iter().map(|row| row.peer.len()).sum();
    assert_eq!(peers, cases.len() - ours);
    assert!(rows.iter().all(|row| row.ceiling_gbps > 0.0));
    let json = serde_json::to_value(&rows).unwrap();
    for field in [
        "code",
        "data",
        "parity",
        "strip_bytes",
        "working_set",
        "operation",
        "kernel",
        "gbps",
        "gbps_min",
        "gbps_max",
        "ceiling_gbps",
    ] {
        assert!(
            json.as_array()
                .unwrap()
                .iter()
                .all(|row| !row[field].is_null()),
            "{field}"
        );
    }
    assert_eq!(json[0]["working_set"], "hot");
}
