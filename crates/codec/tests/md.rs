//! Our P and Q beside those that Linux md itself wrote (`fixtures/md-raid6`): every kernel
//! makes the same bytes from the same data, and brings lost data back from md's.

mod common;

use common::computed;
use strake_codec::{Code, kernels};

/// Bytes of a strip in md's array.
const STRIP_BYTES: usize = 4096;
/// Bytes that the fixture keeps of each strip of parity, another part in each stripe.
const PIECE_BYTES: usize = 256;

/// What md made of the pattern: the kept pieces of all stripes one after another, so that
/// they are one stripe with strips of `members` × 256 bytes.
struct Md {
    data: usize,
    p: &'static [u8],
    q: &'static [u8],
}

const FIXTURES: [Md; 2] = [
    Md {
        data: 4,
        p: include_bytes!("fixtures/md-raid6/4+2.p"),
        q: include_bytes!("fixtures/md-raid6/4+2.q"),
    },
    Md {
        data: 14,
        p: include_bytes!("fixtures/md-raid6/14+2.p"),
        q: include_bytes!("fixtures/md-raid6/14+2.q"),
    },
];

impl Md {
    /// All strips, data first, then md's P and Q.
    fn strips(&self) -> Vec<Vec<u8>> {
        let data = (0..self.data).map(|strip| self.data_strip(strip));
        data.chain([self.p.to_vec(), self.q.to_vec()]).collect()
    }

    /// The pieces of the volume that lie where the kept parity lies.
    fn data_strip(&self, strip: usize) -> Vec<u8> {
        let stripes = self.data + 2;
        let piece = |stripe: usize| {
            let offset = stripe * PIECE_BYTES % STRIP_BYTES;
            let start = (stripe * self.data + strip) * STRIP_BYTES + offset;
            (start / 4..(start + PIECE_BYTES) / 4).flat_map(|n| pattern(n as u32).to_le_bytes())
        };
        (0..stripes).flat_map(piece).collect()
    }
}

/// Word `n` of the volume, as `fixtures/md-raid6/make.py` has it.
fn pattern(n: u32) -> u32 {
    let hash = n.wrapping_mul(0x9e37_79b1);
    let hash = (hash ^ hash >> 15).wrapping_mul(0x85eb_ca77);
    hash ^ hash >> 13
}

#[test]
fn p_and_q_are_those_of_linux_md() {
    for md in FIXTURES {
        let strips = md.strips();
        let (data, parities) = strips.split_at(md.data);
        let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let code = Code::new(md.data, 2).expect("RAID 6");
        for kernel in kernels() {
            let ours = computed(kernel, code.encoder(), &inputs);
            assert!(ours == parities, "{kernel} {}+2", md.data);
        }
    }
}

#[test]
fn any_two_lost_strips_come_back_from_what_linux_md_wrote() {
    for md in FIXTURES {
        let strips = md.strips();
        let code = Code::new(md.data, 2).expect("RAID 6");
        let all = u64::MAX >> (64 - strips.len());
        let pairs = (0..strips.len()).flat_map(|a| (0..=a).map(move |b| (a, b)));
        for (a, b) in pairs {
            let lost = 1 << a | 1 << b;
            let decoder = code.decoder(all & !lost, lost).expect("two lost at most");
            let of = |numbers: &[u8]| numbers.iter().map(|&n| usize::from(n)).collect::<Vec<_>>();
            let sources = of(decoder.sources());
            let inputs: Vec<&[u8]> = sources.iter().map(|&n| &strips[n][..]).collect();
            for kernel in kernels() {
                let ours = computed(kernel, decoder.transform(), &inputs);
                let theirs = of(decoder.wanted()).into_iter().map(|n| &strips[n]);
                assert!(ours.iter().eq(theirs), "{kernel} {}+2 {a} {b}", md.data);
            }
        }
    }
}
