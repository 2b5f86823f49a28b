//! Parity arithmetic: bytes to bytes.
//!
//! What is here: the one code of the house ([`Code`]: XOR, P, Q and further
//! parities for any N+M up to 64 strips, and mirrors), the matrices it is made of
//! ([`Transform`]), how lost strips come back ([`Decoder`]), and the kernels that
//! carry the arithmetic out on each kind of processor ([`kernel()`]).
//!
//! What always holds: every kernel gives the same bytes for the same question; any
//! length and any alignment is right; no call allocates after construction except
//! [`Code::decoder`] when it meets a pattern for the first time.
//!
//! What it never does: I/O, layout (which member holds which strip), policy.
//! A wrong count or length of slices is a mistake of the caller and panics.
//!
//! The layers: `field` arithmetic and tables; `plain`, the reference that is
//! also the kernel of last resort; `vector`, each algorithm once over a small trait;
//! `arch/`, one thin file per instruction set and the only place with `unsafe`.

#![deny(unsafe_code)]

mod arch;
mod bytes;
mod checksum;
mod code;
mod decoder;
mod field;
mod kernel;
mod locate;
mod plain;
mod tables;
mod transform;
mod vector;

#[cfg(test)]
mod testing;

pub use bytes::{equal, is_zero};
pub use checksum::{copy_with_checksums, crc32c};
pub use code::{CODE_ID, Code, CodeError, PARITY_MAX, STRIPS_MAX};
pub use decoder::Decoder;
pub use kernel::{KernelError, kernel, kernel_choice, kernels};
pub use locate::Located;
pub use transform::{Onto, Sum, Transform};
