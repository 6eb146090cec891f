//! The program from outside: what it prints, where, and with which exit code.

mod answers;
mod benches;
mod devices;
mod encoders;
mod errors;
mod inspecting;
mod mettle;
mod perplexity;
mod plans;
mod quantizing;
mod serving;
