//! The API's answers as people read them: pure functions from an answer to text.

mod arrays;
mod drives;
mod exports;

pub use arrays::*;
pub use drives::*;
pub use exports::*;

#[cfg(test)]
pub mod tests;
