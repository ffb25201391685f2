//! The documents: every configuration in them is loaded, and the reference holds neither less nor
//! more than the programs know. `slipstream-xtask check-docs` checks links and form.

mod configurations;
mod pages;
mod reference;
mod stage;
