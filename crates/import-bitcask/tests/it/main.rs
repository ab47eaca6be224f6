//! Imports of directories that are written here from the facts of the format.

mod basho;
mod damage;
mod fake_server;
mod formats;
mod interruptions;
mod objects;
mod replicas;
mod world;
