//! Models by name: what the names mean, where their files are kept, and how they get there.

mod cached;
mod catalogue;
mod home;
mod http;
mod hub;
mod hub_files;
mod locate;
mod package;
mod part_file;
mod progress;
mod pull;

pub use cached::{Cached, list};
pub use catalogue::{CATALOGUE, CatalogueEntry, DEFAULT_MODEL, HUB_ENTRIES, HubEntry, Package};
pub use home::Home;
pub use locate::{Located, locate};
pub use progress::{NoProgress, Options, Progress};
pub use pull::pull;
