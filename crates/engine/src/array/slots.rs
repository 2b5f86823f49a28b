//! A table of reusable slots: entries keep their memory when they are given back.

/// Table with stable small indices; a freed entry is handed out again with its vectors' capacity.
pub struct Slots<T> {
    entries: Vec<T>,
    free: Vec<u32>,
    used: usize,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots {
            entries: Vec::new(),
            free: Vec::new(),
            used: 0,
        }
    }
}

impl<T: Default> Slots<T> {
    /// An entry to fill; what it held before is still in it.
    pub fn take(&mut self) -> u32 {
        self.used += 1;
        self.free.pop().unwrap_or_else(|| {
            self.entries.push(T::default());
            (self.entries.len() - 1) as u32
        })
    }

    /// Gives an entry back.
    pub fn give(&mut self, index: u32) {
        self.used -= 1;
        self.free.push(index);
    }

    /// Every entry, those not in use included.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter()
    }

    /// Entries in use.
    pub fn used(&self) -> usize {
        self.used
    }
}

impl<T> std::ops::Index<u32> for Slots<T> {
    type Output = T;
    fn index(&self, index: u32) -> &T {
        &self.entries[index as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slots<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.entries[index as usize]
    }
}
