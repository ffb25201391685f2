//! Changes that a proxy makes to the headers of requests and responses.

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::{request, response};
use hyper::{Method, StatusCode, Uri, Version};

use crate::identity::{Identity, join};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Turns a client's request into an HTTP/1.1 request for a backend: sets the target to origin form,
/// adds `Host` and the client's identity, and removes hop-by-hop headers (RFC 9110, 7.6.1). Returns
/// true if the request asks for an upgrade.
///
/// # Errors
/// Returns the status of the response if the request cannot be forwarded.
pub fn to_backend(parts: &mut request::Parts, identity: &Identity) -> Result<bool, StatusCode> {
    if parts.method == Method::CONNECT {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let host = host(parts, identity)?;
    make_origin_form(parts)?;
    check_transfer_encoding(&parts.headers)?;
    let upgrade = upgrade(parts);
    remove_contradicted_length(&mut parts.headers);
    let takes_trailers = has_token(&parts.headers, &TE, "trailers");
    remove_hop_by_hop(&mut parts.headers);
    let headers = &mut parts.headers;
    // hyper sends 100 Continue when the body is read, without waiting for the backend.
    headers.remove(EXPECT);
    if parts.version == Version::HTTP_2 {
        join(headers, &COOKIE, b"; ");
    }
    identity.replace(headers, &host);
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    let wants_upgrade = upgrade.is_some();
    if let Some(protocol) = upgrade {
        headers.insert(UPGRADE, protocol);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    parts.version = Version::HTTP_11;
    Ok(wants_upgrade)
}

/// Turns a backend's response into one for the client: removes hop-by-hop headers.
pub fn to_client(parts: &mut response::Parts) {
    remove_contradicted_length(&mut parts.headers);
    let upgrade = match parts.status {
        StatusCode::SWITCHING_PROTOCOLS => parts.headers.remove(UPGRADE),
        _ => None,
    };
    remove_hop_by_hop(&mut parts.headers);
    if let Some(protocol) = upgrade {
        parts.headers.insert(UPGRADE, protocol);
        parts
            .headers
            .insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    parts.version = Version::HTTP_11;
}

/// Returns the host that a request is for (RFC 9112, 3.2; RFC 9113, 8.3.1).
fn host(parts: &request::Parts, identity: &Identity) -> Result<HeaderValue, StatusCode> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    if second.is_some() || (first.is_none() && parts.version == Version::HTTP_11) {
        return Err(StatusCode::BAD_REQUEST);
    }
    if let Some(authority) = parts.uri.authority() {
        let text = authority.as_str();
        let text = text.rsplit_once('@').map_or(text, |(_, host)| host);
        return HeaderValue::from_str(text).map_err(|_| StatusCode::BAD_REQUEST);
    }
    match first {
        Some(host) => Ok(host.clone()),
        None if parts.version == Version::HTTP_2 => Err(StatusCode::BAD_REQUEST),
        None => Ok(identity.host().clone()),
    }
}

fn make_origin_form(parts: &mut request::Parts) -> Result<(), StatusCode> {
    let target = parts.uri.path_and_query().ok_or(StatusCode::BAD_REQUEST)?;
    let is_asterisk = target.as_str() == "*";
    if is_asterisk && parts.method != Method::OPTIONS {
        return Err(StatusCode::BAD_REQUEST);
    }
    if !is_asterisk && !target.as_str().starts_with('/') {
        return Err(StatusCode::BAD_REQUEST);
    }
    if parts.uri.authority().is_some() {
        parts.uri = Uri::from(target.clone());
    }
    Ok(())
}

/// Refuses transfer codings other than `chunked`. hyper decodes only that one, so the backend would
/// receive encoded content without being told.
fn check_transfer_encoding(headers: &HeaderMap) -> Result<(), StatusCode> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_known = match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(coding), None) => coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    };
    match is_known {
        true => Ok(()),
        false => Err(StatusCode::NOT_IMPLEMENTED),
    }
}

/// Removes `Content-Length` beside `Transfer-Encoding`: it is wrong, and may be an attempt to
/// smuggle a request (RFC 9112, 6.3).
fn remove_contradicted_length(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
}

/// Returns the protocol that the client asks to upgrade to. HTTP/2 is not accepted, since its
/// requests would bypass this proxy.
fn upgrade(parts: &request::Parts) -> Option<HeaderValue> {
    if parts.version != Version::HTTP_11 || !has_token(&parts.headers, &CONNECTION, "upgrade") {
        return None;
    }
    let mut protocols = parts.headers.get_all(UPGRADE).iter();
    let protocol = protocols.next()?;
    let is_single = protocols.next().is_none() && !protocol.as_bytes().contains(&b',');
    let is_http = protocol
        .as_bytes()
        .get(..2)
        .is_some_and(|start| start.eq_ignore_ascii_case(b"h2"));
    (is_single && !is_http).then(|| protocol.clone())
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(headers, &CONNECTION)
        .filter_map(|token| HeaderName::from_bytes(token).ok())
        .collect();
    let always = [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
    ];
    for name in named.iter().chain(&always) {
        headers.remove(name);
    }
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    tokens(headers, name).any(|found| {
        let found = found.split(|&byte| byte == b';').next().unwrap_or(found);
        found.trim_ascii().eq_ignore_ascii_case(token.as_bytes())
    })
}

/// Returns the members of a list (RFC 9110, 5.6.1).
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|token| !token.is_empty())
}
