use super::*;
use array::ArrayCommand;
use clap::error::ErrorKind;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn every_documented_command_is_accepted() {
    for line in [
        "strake daemon --socket /s --state-dir /v --run-dir /r --cores 2 --memory 64MiB",
        "strake --json drive list",
        "strake drive show /dev/sda",
        "strake drive clean /dev/sda --force",
        "strake drive fault d0 --dead",
        "strake drive fault d0 --die-after 3 --bad-range 1M:4k --bad-range 2M:4k --read-error-one-in 10 --latency-us 5",
        "strake drive fault d0 --write-error-one-in 1 --lost-write-one-in 2 --torn-write-one-in 3",
        "strake drive fault d0 --heal",
        "strake inspect d0",
        "strake array create data --level raid6 --drives a b c d --strip-size 64KiB --block-size 4096",
        "strake array create data --level n+m --parity 2 --drives a b c d --force",
        "strake array create data --level 10 --copies 2 --drives a b",
        "strake array create data --level 60 --group-size 4 --drives a b c d e f g h",
        "strake array list --json",
        "strake array show data",
        "strake array fail data 3 --force",
        "strake array remove data /dev/sda",
        "strake array replace data 3 /dev/sdb --force --wait",
        "strake array stop data",
        "strake array start data --force --read-only",
        "strake array import",
        "strake array import --drives a b",
        "strake array import data --drives a b --name new --read-only --force",
        "strake array destroy data --force",
        "strake array scrub data --repair --wait",
        "strake array scrub data --stop",
        "strake array wait data",
        "strake array set data --rebuild-priority 80",
        "strake array set data --policy log-all",
        "strake array set data --policy resync --rebuild-priority 10",
        "strake array create data --level 6 --drives a b c d --policy resync --log-size 64M",
        "strake array torn data",
        "strake array accept data --force",
        "strake export create data --nbd",
        "strake export create data --nbd --unix /s",
        "strake export create data --nbd --tcp 127.0.0.1:10809",
        "strake export create data --fuse",
        "strake export list",
        "strake export show nbd1",
        "strake export remove nbd1",
        "strake attach data",
        "strake detach data",
        "strake status",
        "strake completions bash",
    ] {
        if let Err(error) = parse(line) {
            panic!("{line}: {error}");
        }
    }
}

#[test]
fn mistakes_in_usage_are_found_before_the_daemon_is_asked() {
    for line in [
        "strake",
        "strake array",
        "strake array create data --level 4 --drives a",
        "strake array create data --level 5",
        "strake array create data --level 5 --drives a --strip-size 64Q",
        "strake array set data",
        "strake array set data --policy journal",
        "strake array create data --level 6 --drives a b c d --log-size many",
        "strake array torn",
        "strake array set data --rebuild-priority 0",
        "strake array set data --rebuild-priority 101",
        "strake array scrub data --stop --repair",
        "strake array import --name new",
        "strake export create data",
        "strake export create data --nbd --fuse",
        "strake export create data --fuse --tcp 127.0.0.1:1",
        "strake export create data --nbd --unix /s --tcp 127.0.0.1:1",
        "strake drive fault d0",
        "strake drive fault d0 --heal --dead",
        "strake drive fault d0 --bad-range 5",
        "strake completions klingon",
    ] {
        let error = parse(line).err().unwrap_or_else(|| panic!("{line}"));
        assert_ne!(error.kind(), ErrorKind::DisplayHelp, "{line}");
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}

#[test]
fn create_takes_sizes_and_levels_as_people_write_them() {
    let cli = parse(
        "strake array create data --level RAID7.3 --drives a b --strip-size 128k --block-size 512",
    )
    .unwrap();
    let Command::Array(ArrayCommand::Create(args)) = cli.command else {
        panic!("not a create");
    };
    assert_eq!(args.level, api::Level::Raid73);
    assert_eq!(
        (args.strip_size, args.block_size),
        (Some(131_072), Some(512))
    );
    assert_eq!(args.drives, ["a", "b"]);
}

#[test]
fn completions_know_the_verbs() {
    let mut text = Vec::new();
    clap_complete::generate(
        clap_complete::Shell::Bash,
        &mut Cli::command(),
        "strake",
        &mut text,
    );
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("rebuild-priority") && text.contains("detach"));
}
