//! CPU times of servers inside the window of a load.

use std::time::Duration;

use slipstream_testbed::processor::on_core;

use super::Edge;
use crate::Error;

/// CPU times of a server, and of the process that works beside it: an engine, or a terminator in
/// front of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// The time of the server.
    pub server: Duration,
    /// The time of the process beside it, if there is one.
    pub beside: Option<Duration>,
}

impl CpuTimes {
    /// The times that have passed since an earlier reading.
    pub fn since(&self, earlier: &CpuTimes) -> CpuTimes {
        let beside = self.beside.zip(earlier.beside);
        CpuTimes {
            server: self.server.saturating_sub(earlier.server),
            beside: beside.map(|(now, earlier)| now.saturating_sub(earlier)),
        }
    }

    /// The sum of both.
    pub fn sum(&self) -> Duration {
        self.server + self.beside.unwrap_or_default()
    }
}

/// Runs a load on a core of its own. Returns its report, and the CPU times that the servers have
/// used inside its window, by two readings of `read`.
///
/// # Errors
/// Errors of `run` and `read`; [`Error::Testbed`] when the core may not be used.
pub fn with_cpu_times<R: Send>(
    core: usize,
    run: impl FnOnce(&mut dyn FnMut(Edge) -> Result<(), Error>) -> Result<R, Error> + Send,
    read: impl Fn() -> Result<CpuTimes, Error> + Send,
) -> Result<(R, CpuTimes), Error> {
    let mut used = CpuTimes::default();
    let window = &mut used;
    let report = on_core(core, move || {
        run(&mut |edge| {
            let now = read()?;
            *window = match edge {
                Edge::Open => now,
                Edge::Close => now.since(window),
            };
            Ok(())
        })
    })?;
    Ok((report, used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_with_and_without_a_process_beside() {
        let times = |server, beside: Option<u64>| CpuTimes {
            server: Duration::from_millis(server),
            beside: beside.map(Duration::from_millis),
        };
        let used = times(50, Some(30)).since(&times(10, Some(5)));
        assert_eq!(used.sum(), Duration::from_millis(65));
        assert_eq!(
            times(50, None).since(&times(10, None)).sum().as_millis(),
            40
        );
    }
}
