//! Servers that publish nothing: they run, and this command cannot tell what they do.

use std::collections::BTreeSet;
use std::fs;

use slipstream_metrics::published::{Entry, Unreadable};

/// Returns the masters of nginx that run and have published nothing.
pub(super) fn unpublished(entries: &[Entry]) -> Vec<u32> {
    let published: BTreeSet<u32> = entries
        .iter()
        .filter_map(|entry| match &entry.content {
            Ok(published) => Some(published.process),
            Err(Unreadable::Foreign { process, .. }) => Some(*process),
            Err(_) => None,
        })
        .collect();
    // Among those that cannot be read may be any of them.
    let is_denied = |entry: &Entry| matches!(entry.content, Err(Unreadable::Denied(_)));
    if entries.iter().any(is_denied) {
        return Vec::new();
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes
        .filter(|process| is_master(*process) && !published.contains(process))
        .collect()
}

/// Returns true for the first process of an nginx.
fn is_master(process: u32) -> bool {
    let is_nginx = |process: u32| {
        let name = fs::read_to_string(format!("/proc/{process}/comm"));
        name.is_ok_and(|name| name.trim_end() == "nginx")
    };
    let parent = || {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        fields.split_whitespace().nth(1)?.parse().ok()
    };
    is_nginx(process) && !parent().is_some_and(is_nginx)
}
