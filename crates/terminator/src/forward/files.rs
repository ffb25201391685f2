//! Files of a directory.

use std::io;
use std::path::Path;

use hyper::{Method, Request, Response, StatusCode};
use tower_http::services::ServeDir;
use tower_http::services::fs::ServeFileSystemResponseBody;

/// The content of a file, or of a part of it.
pub type FileBody = ServeFileSystemResponseBody;

/// A directory whose files are served.
#[derive(Clone)]
pub struct Files {
    directory: ServeDir,
}

impl Files {
    /// Those below `directory`. Links in it are followed, wherever they lead.
    ///
    /// # Errors
    /// If it is no directory.
    pub fn new(directory: &Path) -> Result<Self, String> {
        if !directory.is_dir() {
            return Err(format!(
                "{}: no directory, or not readable: give one whose files are to be served",
                directory.display()
            ));
        }
        Ok(Self {
            directory: ServeDir::new(directory),
        })
    }

    /// The file that `request` asks for, or a part of it, or that it has not changed.
    ///
    /// # Errors
    /// The status of the response if there is none.
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

/// Whether `path` may name a file that everybody may read: no part of it begins with a dot, but that of RFC 8615.
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

/// `None` if it is encoded in a way that no client needs.
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
