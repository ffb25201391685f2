//! What an operator sees and sets: [metrics], the [access log](access_log), [limits], [systemd], [privileges], and files that are
//! [watched](watch).

pub mod access_log;
pub mod limits;
pub mod metrics;
pub mod privileges;
pub mod systemd;
pub mod watch;
