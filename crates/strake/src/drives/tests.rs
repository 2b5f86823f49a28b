use super::*;

#[test]
fn relative_paths_become_absolute_also_within_a_wrapper() {
    let here = std::env::current_dir().unwrap();
    let d0 = here.join("d0.img").to_string_lossy().into_owned();
    assert_eq!(absolute("d0.img"), d0);
    assert_eq!(absolute("faulty:d0.img"), format!("faulty:{d0}"));
    let both = "cache=none:faulty:";
    assert_eq!(absolute(&format!("{both}d0.img")), format!("{both}{d0}"));
    let recorded = "recorded:/log:faulty:";
    assert_eq!(
        absolute(&format!("{recorded}d0.img")),
        format!("{recorded}{d0}")
    );
    assert_eq!(unwrapped(&format!("{recorded}{d0}")), d0);
    for same in [
        "/dev/null",
        "memory:64MiB",
        "null:1G:x",
        "faulty:memory:1G",
        "paced:cm7:1G",
        "cache=some:d0.img",
        "",
    ] {
        assert_eq!(absolute(same), same);
    }
}

#[test]
fn a_member_is_an_index_or_a_drive() {
    assert_eq!(absolute_member("3"), "3");
    assert_eq!(absolute_member("/dev/sda"), "/dev/sda");
    assert!(absolute_member("d3.img").starts_with('/'));
}

#[test]
fn one_drive_named_in_several_ways_is_one_drive() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("d0");
    std::fs::write(&file, b"x").unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let texts = |paths: &[&str]| paths.iter().map(|p| p.to_string()).collect::<Vec<_>>();
    let (file, link) = (file.to_str().unwrap(), link.to_str().unwrap());
    let wrapped = format!("faulty:{file}");
    let told = format!("cache=none:{file}");
    assert_eq!(
        distinct(texts(&[&wrapped, file, link, "memory:1G:a", "memory:1G:b"])),
        texts(&[&wrapped, "memory:1G:a", "memory:1G:b"]),
    );
    assert_eq!(distinct(texts(&[&told, &wrapped, link])), texts(&[&told]));
}

/// A probe of a drive with nothing on it.
fn blank() -> Probe {
    Probe {
        info: crate::daemon::mock::drive_info("/d0"),
        member: None,
        copies: ["absent".into(), "absent".into()],
        foreign: None,
        in_use: None,
    }
}

#[test]
fn use_is_told_in_the_order_of_what_matters() {
    let mut probe = blank();
    assert_eq!(summary(&probe).usage, DriveUse::Free);
    probe.copies[1] = "checksum does not match".into();
    assert_eq!(summary(&probe).usage, DriveUse::Foreign);
    probe.foreign = Some("ext4 file system".into());
    assert_eq!(summary(&probe).usage_text, "ext4 file system");
    probe.in_use = Some("mounted at /srv".into());
    assert_eq!(summary(&probe).usage, DriveUse::Busy);
    let error = OpenError::Busy {
        path: "/d0".into(),
        by: "swap".into(),
    };
    assert_eq!(
        unreadable(&DriveSpec("/d0".into()), &error).usage,
        DriveUse::Busy
    );
}
