//! The buddy allocator: pages in powers of two, split on demand, merged when freed.
//!
//! Numbers only, no memory. Every operation is at most `ORDER_MAX` steps; nothing is allocated
//! after `new`. Knuth, The Art of Computer Programming 1, section 2.5.

use super::PAGE_BYTES;

/// Largest piece: 4 KiB * 2^10 = 4 MiB.
pub(super) const ORDER_MAX: u8 = 10;
const ORDERS: usize = ORDER_MAX as usize + 1;
const NONE: u32 = u32::MAX;
/// In `Page::free_order`: the page does not start a free piece.
const TAKEN: u8 = u8::MAX;

#[derive(Clone, Copy)]
struct Page {
    /// Order of the free piece that starts here.
    free_order: u8,
    prev: u32,
    next: u32,
}

/// Free pieces of an arena of pages.
pub(super) struct Buddy {
    pages: Box<[Page]>,
    /// First free piece of each order.
    heads: [u32; ORDERS],
    pages_free: u32,
}

/// The order whose pieces hold `len` bytes; `None` above the largest.
pub(super) fn order_of(len: usize) -> Option<u8> {
    let pages = len.div_ceil(PAGE_BYTES).max(1);
    let order = pages.checked_next_power_of_two()?.trailing_zeros() as u8;
    (order <= ORDER_MAX).then_some(order)
}

impl Buddy {
    pub(super) fn new(pages: u32) -> Buddy {
        let taken = Page {
            free_order: TAKEN,
            prev: NONE,
            next: NONE,
        };
        let mut buddy = Buddy {
            pages: vec![taken; pages as usize].into(),
            heads: [NONE; ORDERS],
            pages_free: pages,
        };
        // From the end, so that the lists start with low addresses. Whole pieces of the largest
        // order first; the tail is cut into the pieces that its binary digits name.
        let whole = pages >> ORDER_MAX << ORDER_MAX;
        let mut start = pages;
        for order in 0..ORDER_MAX {
            if pages & 1 << order != 0 {
                start -= 1 << order;
                buddy.push(start, order);
            }
        }
        debug_assert_eq!(start, whole);
        for start in (0..whole).step_by(1 << ORDER_MAX).rev() {
            buddy.push(start, ORDER_MAX);
        }
        buddy
    }

    pub(super) fn pages_free(&self) -> u32 {
        self.pages_free
    }

    /// First page of a piece of 2^`order` pages.
    pub(super) fn alloc(&mut self, order: u8) -> Option<u32> {
        let found = (order..=ORDER_MAX).find(|&o| self.heads[o as usize] != NONE)?;
        let start = self.heads[found as usize];
        self.unlink(start);
        for half in (order..found).rev() {
            self.push(start + (1 << half), half);
        }
        self.pages_free -= 1 << order;
        Some(start)
    }

    /// Takes back a piece that `alloc` gave, and merges it with its buddies as far as they are free.
    pub(super) fn free(&mut self, start: u32, order: u8) {
        assert_eq!(self.pages[start as usize].free_order, TAKEN, "freed twice");
        self.pages_free += 1 << order;
        let (mut start, mut order) = (start, order);
        while order < ORDER_MAX {
            let buddy = start ^ 1 << order;
            match self.pages.get(buddy as usize) {
                Some(page) if page.free_order == order => self.unlink(buddy),
                _ => break,
            }
            start = start.min(buddy);
            order += 1;
        }
        self.push(start, order);
    }

    fn push(&mut self, start: u32, order: u8) {
        let next = std::mem::replace(&mut self.heads[order as usize], start);
        if next != NONE {
            self.pages[next as usize].prev = start;
        }
        self.pages[start as usize] = Page {
            free_order: order,
            prev: NONE,
            next,
        };
    }

    fn unlink(&mut self, start: u32) {
        let page = self.pages[start as usize];
        match page.prev {
            NONE => self.heads[page.free_order as usize] = page.next,
            prev => self.pages[prev as usize].next = page.next,
        }
        if page.next != NONE {
            self.pages[page.next as usize].prev = page.prev;
        }
        self.pages[start as usize].free_order = TAKEN;
    }
}
