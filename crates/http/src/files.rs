//! Files of a directory as responses.

use std::io;
use std::path::Path;

use hyper::{Method, Request, Response, StatusCode};
use tower_http::services::ServeDir;
use tower_http::services::fs::ServeFileSystemResponseBody;

use crate::ServiceError;

/// Content of a file, or of a range of it.
pub type FileBody = ServeFileSystemResponseBody;

/// Directory whose files are served.
#[derive(Clone)]
pub struct Files {
    directory: ServeDir,
}

impl Files {
    /// Serves the files below `directory`. Symbolic links are followed, wherever they lead.
    ///
    /// # Errors
    /// Returns an error if `directory` is not a directory.
    pub fn new(directory: &Path) -> Result<Self, ServiceError> {
        if !directory.is_dir() {
            return Err(ServiceError::NotADirectory(directory.to_owned()));
        }
        Ok(Self {
            directory: ServeDir::new(directory),
        })
    }

    /// Answers `request` with a file, a range of it, or the status that it has not changed.
    ///
    /// # Errors
    /// Returns the status of the response if there is no such file.
    pub async fn answer<B>(&self, request: Request<B>) -> Result<Response<FileBody>, StatusCode>
    where
        B: Send + 'static,
    {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return Err(StatusCode::METHOD_NOT_ALLOWED);
        }
        if !is_public(request.uri().path()) {
            return Err(StatusCode::NOT_FOUND);
        }
        let response = self
            .directory
            .clone()
            .try_call::<_, FileBody>(request)
            .await
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::InvalidFilename => StatusCode::NOT_FOUND,
                io::ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            })?;
        match response.status() {
            StatusCode::NOT_FOUND => Err(StatusCode::NOT_FOUND),
            _ => Ok(response),
        }
    }
}

/// Returns true if `path` may be served: no segment begins with a dot, except `.well-known` (RFC
/// 8615).
fn is_public(path: &str) -> bool {
    let Some(decoded) = percent_decoded(path) else {
        return false;
    };
    let Some(relative) = decoded.strip_prefix(b"/") else {
        return false;
    };
    if relative.starts_with(b"/") || relative.contains(&0) {
        return false;
    }
    relative
        .split(|&byte| byte == b'/')
        .enumerate()
        .all(|(index, part)| !part.starts_with(b".") || (index == 0 && part == b".well-known"))
}

/// Decodes percent encoding. Returns `None` if it is malformed.
fn percent_decoded(path: &str) -> Option<Vec<u8>> {
    let mut bytes = path.bytes();
    let mut decoded = Vec::with_capacity(path.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            decoded.push(u8::try_from(high << 4 | low).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    Some(decoded)
}
