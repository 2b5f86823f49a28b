//! What is on a drive: pages that clones share until one of them is changed, so that a snapshot of
//! a whole array costs next to nothing.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;

type Page = Rc<Content>;

/// What a page holds, with its hash once that was asked for: pages are shared by thousands of
/// images that are told apart.
#[derive(Clone)]
struct Content {
    bytes: [u8; PAGE_BYTES],
    hash: Cell<Option<u64>>,
}

impl Content {
    fn page(bytes: [u8; PAGE_BYTES]) -> Page {
        let hash = Cell::new(None);
        Rc::new(Content { bytes, hash })
    }

    fn hash(&self) -> u64 {
        self.hash.get().unwrap_or_else(|| {
            let mut hash = 0;
            for word in self.bytes.chunks_exact(8) {
                let word = word.try_into().expect("eight");
                mix(&mut hash, u64::from_le_bytes(word));
            }
            self.hash.set(Some(hash));
            hash
        })
    }
}

/// The bytes of a page that no other image shares, to be changed.
fn own(page: &mut Page) -> &mut [u8; PAGE_BYTES] {
    let content = Rc::make_mut(page);
    content.hash.set(None);
    &mut content.bytes
}

const ZEROES: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// Pages of an image, kept.
pub struct Pages(Vec<Option<Page>>);

fn same(one: &Option<Page>, other: &Option<Page>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Rc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// Content of a drive; pages never written are zeroes.
#[derive(Clone)]
pub struct Image {
    pages: Vec<Option<Page>>,
}

impl Image {
    /// Zeroes, `bytes` of them (a multiple of [`PAGE_BYTES`]).
    pub fn new(bytes: u64) -> Image {
        assert!(bytes.is_multiple_of(PAGE_BYTES as u64));
        Image {
            pages: vec![None; bytes as usize / PAGE_BYTES],
        }
    }

    /// Every byte becomes `byte`.
    pub fn fill(&mut self, byte: u8) {
        let page = (byte != 0).then(|| Content::page([byte; PAGE_BYTES]));
        self.pages.fill(page);
    }

    /// Copies bytes out.
    pub fn peek(&self, offset: u64, out: &mut [u8]) {
        let mut at = offset as usize;
        let mut done = 0;
        while done < out.len() {
            let within = at % PAGE_BYTES;
            let take = (PAGE_BYTES - within).min(out.len() - done);
            match &self.pages[at / PAGE_BYTES] {
                Some(page) => {
                    out[done..done + take].copy_from_slice(&page.bytes[within..within + take])
                }
                None => out[done..done + take].fill(0),
            }
            done += take;
            at += take;
        }
    }

    /// Changes bytes.
    pub fn poke(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = offset as usize;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = at % PAGE_BYTES;
            let (now, later) = rest.split_at((PAGE_BYTES - within).min(rest.len()));
            let page = &mut self.pages[at / PAGE_BYTES];
            match <&[u8; PAGE_BYTES]>::try_from(now) {
                // Most pages of a superblock are zeroes.
                Ok(whole) if *whole == ZEROES => *page = None,
                Ok(whole) => *page = Some(Content::page(*whole)),
                Err(_) => {
                    let page = page.get_or_insert_with(|| Content::page(ZEROES));
                    own(page)[within..within + now.len()].copy_from_slice(now);
                }
            }
            rest = later;
            at += now.len();
        }
    }

    /// Makes bytes zero; whole pages cost nothing.
    pub fn zero(&mut self, offset: u64, length: u64) {
        let (mut at, end) = (offset as usize, (offset + length) as usize);
        while at < end {
            let within = at % PAGE_BYTES;
            let take = (PAGE_BYTES - within).min(end - at);
            let page = &mut self.pages[at / PAGE_BYTES];
            if take == PAGE_BYTES {
                *page = None;
            } else if let Some(page) = page {
                own(page)[within..within + take].fill(0);
            }
            at += take;
        }
    }

    /// The pages of a range (whole pages), shared: while they are kept, equal pages are the same.
    pub fn share(&self, offset: u64, length: u64) -> Pages {
        let first = offset as usize / PAGE_BYTES;
        Pages(self.pages[first..first + length as usize / PAGE_BYTES].to_vec())
    }

    /// Whether a range holds the very pages that were shared.
    pub fn holds(&self, offset: u64, pages: &Pages) -> bool {
        let first = offset as usize / PAGE_BYTES;
        let here = &self.pages[first..first + pages.0.len()];
        here.iter().zip(&pages.0).all(|pair| same(pair.0, pair.1))
    }

    /// Whether nothing but zeroes was ever stored in this range's pages.
    pub fn is_untouched(&self, offset: u64, length: u64) -> bool {
        let (first, end) = (
            offset as usize / PAGE_BYTES,
            ((offset + length) as usize).div_ceil(PAGE_BYTES),
        );
        self.pages[first..end].iter().all(Option::is_none)
    }

    /// Adds the content to a hash. Pages shared with `base` at the same place are left out: two
    /// images are told apart by where they differ from a common base.
    pub fn hash_against(&self, base: &Image, hash: &mut u64) {
        self.hash_range_against(base, 0..(self.pages.len() * PAGE_BYTES) as u64, hash);
    }

    /// Calls with the number and a hash of the content of every page that is not shared with `base`.
    pub fn each_change(&self, base: &Image, mut changed: impl FnMut(usize, u64)) {
        for (index, (page, base)) in self.pages.iter().zip(&base.pages).enumerate() {
            if !same(page, base) {
                changed(index, hash_page(page));
            }
        }
    }

    /// The same, of the pages of a range.
    pub fn hash_range_against(&self, base: &Image, range: Range<u64>, hash: &mut u64) {
        let range = range.start as usize / PAGE_BYTES..range.end as usize / PAGE_BYTES;
        let pages = self.pages[range.clone()]
            .iter()
            .zip(&base.pages[range.clone()]);
        for (index, (page, base)) in range.zip(pages) {
            if same(page, base) {
                continue;
            }
            mix(hash, index as u64);
            mix(hash, hash_page(page));
        }
    }
}

fn hash_page(page: &Option<Page>) -> u64 {
    page.as_ref().map_or(0, |page| page.hash())
}

/// Adds a number to a hash.
pub fn mix(hash: &mut u64, value: u64) {
    *hash = (*hash ^ value)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29);
}
