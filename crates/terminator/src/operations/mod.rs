//! Interfaces for operators: [metrics], [limits], [systemd], [privileges], and [files that are
//! watched](watch).

pub mod limits;
pub mod metrics;
pub mod privileges;
pub mod systemd;
pub mod watch;
