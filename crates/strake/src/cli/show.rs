//! The API's answers as people read them: pure functions from an answer to text.

mod arrays;
mod drives;
mod exports;
mod torn;

pub use arrays::*;
pub use drives::*;
pub use exports::*;
pub use torn::torn_list;

#[cfg(test)]
pub mod tests;
