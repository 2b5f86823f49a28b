//! The kernels, one thin file per instruction set, and which of them this machine
//! can run. The only room of this crate with `unsafe`.
//!
//! What keeps it sound: a [`Kernel`] is handed out by [`usable`] only, which has
//! asked the processor, and only a `Kernel` enters an instruction set's code.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_gfni;
#[cfg(test)]
mod model;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod ssse3;

use arrayvec::ArrayVec;

use crate::plain;
use crate::tables::Job;

/// The names of all kernels of all machines, the fastest first.
pub(crate) const NAMES: &[&str] = &[
    "avx512-gfni",
    "avx512",
    "avx2",
    "ssse3",
    "neon",
    #[cfg(test)]
    "model",
    "plain",
];

/// A kernel that this machine can run.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    name: &'static str,
    run: unsafe fn(&mut Job<'_, '_>),
    is_zero: unsafe fn(&[u8]) -> bool,
}

impl Kernel {
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Carries out the job.
    pub(crate) fn run(self, job: &mut Job<'_, '_>) {
        // SAFETY: `usable` made this value, and only after the processor was seen to
        // have the instructions that `run` was compiled for.
        unsafe { (self.run)(job) }
    }

    /// Whether all bytes are zero.
    pub(crate) fn is_zero(self, bytes: &[u8]) -> bool {
        // SAFETY: as in `run`.
        unsafe { (self.is_zero)(bytes) }
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The kernels that this machine can run, the fastest first; never empty.
pub(crate) fn usable() -> ArrayVec<Kernel, { NAMES.len() }> {
    let mut kernels = ArrayVec::new();
    #[cfg(target_arch = "x86_64")]
    {
        if avx512_gfni::detected() {
            kernels.push(kernel(
                "avx512-gfni",
                avx512_gfni::run,
                avx512_gfni::is_zero,
            ));
        }
        if avx512::detected() {
            kernels.push(kernel("avx512", avx512::run, avx512::is_zero));
        }
        if avx2::detected() {
            kernels.push(kernel("avx2", avx2::run, avx2::is_zero));
        }
        if ssse3::detected() {
            kernels.push(kernel("ssse3", ssse3::run, ssse3::is_zero));
        }
    }
    #[cfg(target_arch = "aarch64")]
    if neon::detected() {
        kernels.push(kernel("neon", neon::run, neon::is_zero));
    }
    #[cfg(test)]
    kernels.push(kernel("model", model::run, model::is_zero));
    kernels.push(kernel("plain", plain::run, plain::is_zero));
    kernels
}

/// Called by `usable` only, after the functions' instructions were detected: that is what the unsafe
/// of their types asks of who calls them, and a kernel that is not usable is never made.
fn kernel(
    name: &'static str,
    run: unsafe fn(&mut Job<'_, '_>),
    is_zero: unsafe fn(&[u8]) -> bool,
) -> Kernel {
    debug_assert!(NAMES.contains(&name));
    Kernel { name, run, is_zero }
}
