//! Which kernel runs: the best this machine has, or the one it was told to use.

use std::sync::OnceLock;

use crate::arch::{self, Kernel};

/// The environment variable that forces a kernel by name.
const VARIABLE: &str = "STRAKE_KERNEL";

/// Why a kernel asked for by name cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// No kernel of any machine has this name.
    #[error(
        "parity kernel \"{name}\" (environment variable STRAKE_KERNEL) does not exist: \
         unset it, or choose one that this machine can run: {usable}"
    )]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names this machine can run, separated by commas.
        usable: String,
    },
    /// The kernel needs instructions that this processor lacks.
    #[error(
        "parity kernel \"{name}\" (environment variable STRAKE_KERNEL) needs instructions \
         that this processor lacks: unset it, or choose one that this machine can run: {usable}"
    )]
    Unavailable {
        /// The name asked for.
        name: String,
        /// The names this machine can run, separated by commas.
        usable: String,
    },
}

/// What was decided at the first question, for the life of the process.
struct Choice {
    kernel: Kernel,
    refused: Option<KernelError>,
}

fn choice() -> &'static Choice {
    static CHOICE: OnceLock<Choice> = OnceLock::new();
    CHOICE.get_or_init(|| {
        let forced = std::env::var_os(VARIABLE);
        choose(
            forced
                .as_ref()
                .map(|name| name.to_string_lossy())
                .as_deref(),
        )
    })
}

fn choose(forced: Option<&str>) -> Choice {
    let best = arch::usable()[0];
    match forced.filter(|name| !name.is_empty()).map(find) {
        None => Choice {
            kernel: best,
            refused: None,
        },
        Some(Ok(kernel)) => Choice {
            kernel,
            refused: None,
        },
        Some(Err(refused)) => Choice {
            kernel: best,
            refused: Some(refused),
        },
    }
}

/// The kernel of that name, if this machine can run it.
pub(crate) fn find(name: &str) -> Result<Kernel, KernelError> {
    let usable = arch::usable();
    if let Some(kernel) = usable.iter().find(|kernel| kernel.name() == name) {
        return Ok(*kernel);
    }
    let (name, usable) = (name.to_owned(), kernels().join(", "));
    if arch::NAMES.contains(&name.as_str()) {
        Err(KernelError::Unavailable { name, usable })
    } else {
        Err(KernelError::Unknown { name, usable })
    }
}

/// The kernel that new transforms use.
pub(crate) fn chosen() -> Kernel {
    choice().kernel
}

/// The name of the kernel in use: `avx512-gfni`, `avx512`, `avx2`, `ssse3`,
/// `neon` or `plain`.
///
/// Chosen once, at the first question: the fastest that this machine can run, or the
/// one that the environment variable `STRAKE_KERNEL` names. Where that one is
/// impossible the fastest runs; [`kernel_choice`] tells why.
pub fn kernel() -> &'static str {
    choice().kernel.name()
}

/// As [`kernel`], but fails if `STRAKE_KERNEL` names a kernel that does not exist or
/// that this machine cannot run. For the program to ask at its start.
pub fn kernel_choice() -> Result<&'static str, KernelError> {
    match &choice().refused {
        None => Ok(choice().kernel.name()),
        Some(refused) => Err(refused.clone()),
    }
}

/// The names of all kernels that this machine can run, the fastest first; `plain`
/// is always among them. For tests and measurements.
pub fn kernels() -> Vec<&'static str> {
    arch::usable().iter().map(Kernel::name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_always_runs_and_comes_last() {
        assert_eq!(kernels().last(), Some(&"plain"));
        assert!(kernels().contains(&kernel()));
    }

    #[test]
    fn nothing_forced_takes_the_fastest() {
        for unset in [None, Some("")] {
            let choice = choose(unset);
            assert_eq!(choice.kernel.name(), kernels()[0]);
            assert_eq!(choice.refused, None);
        }
    }

    #[test]
    fn every_usable_kernel_can_be_forced() {
        for name in kernels() {
            let choice = choose(Some(name));
            assert_eq!(choice.kernel.name(), name);
            assert_eq!(choice.refused, None);
        }
    }

    #[test]
    fn a_kernel_nobody_knows_is_refused_with_the_ones_there_are() {
        let choice = choose(Some("abacus"));
        assert_eq!(choice.kernel.name(), kernels()[0]);
        let text = choice.refused.expect("refused").to_string();
        assert!(text.contains("\"abacus\"") && text.contains("does not exist"));
        assert!(text.contains("plain") && text.contains(VARIABLE));
    }

    #[test]
    fn a_kernel_of_another_processor_is_refused() {
        for name in arch::NAMES {
            if !kernels().contains(name) {
                let refused = find(name).expect_err("another machine's");
                assert!(matches!(refused, KernelError::Unavailable { .. }));
                assert!(refused.to_string().contains("lacks"));
            }
        }
    }
}
