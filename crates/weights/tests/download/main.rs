//! Fetching from a hub that runs on this machine and misbehaves, and finding what was fetched.

mod fetching;
mod hub_server;
mod locating;
