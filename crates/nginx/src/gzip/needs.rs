//! The needs of a configuration: the resources that its locations ask of a worker.

/// The most chunks that a worker has in flight at the device: the number of its instance's buffers.
const REQUESTS: usize = 16;

/// Needs of all locations of a configuration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// A location compresses.
    pub(crate) compresses: bool,
    /// The longest chunk that is submitted to a device, in bytes. 0 if none is.
    pub(crate) device_chunk: usize,
    /// A location is to compress at a device only.
    pub(crate) asks_for_device: bool,
}

impl Needs {
    /// The number of buffers that an instance has to have.
    pub(crate) fn requests(self) -> usize {
        if self.device_chunk == 0 { 0 } else { REQUESTS }
    }
}
