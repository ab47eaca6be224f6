//! Pages made from result directories, as the command line makes them.

mod directory;
mod pages;
