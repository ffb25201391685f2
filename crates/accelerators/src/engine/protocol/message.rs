//! The messages of client and engine on the socket. One message is one packet; each message of the
//! client is answered by one of the engine, in order.

use std::fmt;

use slipstream_keys::ec::Curve;
use slipstream_keys::rsa::Components;
use slipstream_keys::{Handle, KeyParts};
use zeroize::Zeroizing;

use super::layout::Layout;
use super::packet::{Reader, Writer};
use super::policy::Policy;

/// The version of the protocol; changed with every change of messages or slots.
pub const VERSION: u32 = 3;

/// The longest message in bytes: an RSA-4096 key.
pub const MESSAGE_BYTES: usize = 4096;

/// A secret by which an instance on one connection may use the keys of another.
pub type Token = [u8; 32];

/// The rule by which the engine wakes a client that sleeps (ACSA section 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregation {
    /// When this many requests have been answered, or none of the client's is left, or after a
    /// time.
    Fixed(u32),
    /// As before, with a number that follows the load.
    Adaptive,
}

/// A message of a client.
pub enum ToEngine<'a> {
    /// Asks for an instance, one on a connection.
    Open {
        /// Its rings and buffers.
        layout: Layout,
        /// The number of requests of this client that are taken in its turn, when other clients
        /// wait too.
        weight: u32,
        /// The rule by which the client is woken.
        aggregation: Aggregation,
        /// Joins the keys of the connection that was [granted](Self::Grant) this.
        token: Option<Token>,
    },
    /// Brings a private key, which belongs to the connection. One that has joined another cannot
    /// bring any.
    Register {
        /// The key.
        key: KeyParts<'a>,
        /// The uses that are allowed. Those of a key that is brought again add up.
        policy: Policy,
    },
    /// Takes a key back: requests that name it are refused from now on.
    Revoke(Handle),
    /// Asks for a token with which other connections may use the keys of this one.
    Grant,
    /// Asks for the engine's figures.
    Status,
}

/// A message of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToClient {
    /// Three descriptors come with it: the memory, the client's to wake the engine, the engine's to
    /// wake the client.
    Opened,
    /// The engine has the key.
    Registered(Handle),
    /// The engine does not have the key any more.
    Revoked,
    /// The token.
    Granted(Token),
    /// Figures as JSON.
    Status(String),
    /// The request cannot be fulfilled, for this reason.
    Refused(String),
}

/// An impossible message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed message: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

const OPEN: u8 = 1;
const REGISTER_RSA: u8 = 2;
const REGISTER_EC: u8 = 3;
const GRANT: u8 = 4;
const STATUS: u8 = 5;
const REVOKE: u8 = 6;
const OPENED: u8 = 65;
const REGISTERED: u8 = 66;
const GRANTED: u8 = 67;
const FIGURES: u8 = 68;
const REFUSED: u8 = 69;
const REVOKED: u8 = 70;

impl<'a> ToEngine<'a> {
    /// Writes the message as a packet; it may hold secrets.
    pub fn write(&self) -> Zeroizing<Vec<u8>> {
        let mut writer = Writer::new();
        match self {
            ToEngine::Open {
                layout,
                weight,
                aggregation,
                token,
            } => {
                writer.byte(OPEN);
                writer.number(VERSION);
                writer.number(layout.slots() as u32);
                writer.number(layout.buffers() as u32);
                writer.number(layout.content_bytes() as u32);
                writer.number(*weight);
                writer.number(match aggregation {
                    Aggregation::Fixed(count) => *count,
                    Aggregation::Adaptive => 0,
                });
                writer.bytes(token.as_ref().map_or(&[], |token| &token[..]));
            }
            ToEngine::Register {
                key: KeyParts::Rsa(components),
                policy,
            } => {
                writer.byte(REGISTER_RSA);
                writer.byte(policy.byte());
                for number in [
                    components.modulus,
                    components.public_exponent,
                    components.prime1,
                    components.prime2,
                    components.exponent1,
                    components.exponent2,
                    components.coefficient,
                ] {
                    writer.bytes(number);
                }
            }
            ToEngine::Register {
                key: KeyParts::Ec { curve, private },
                policy,
            } => {
                writer.byte(REGISTER_EC);
                writer.byte(policy.byte());
                writer.byte(curve.index() as u8);
                writer.bytes(private);
            }
            ToEngine::Revoke(handle) => {
                writer.byte(REVOKE);
                writer.handle(*handle);
            }
            ToEngine::Grant => writer.byte(GRANT),
            ToEngine::Status => writer.byte(STATUS),
        }
        writer.into_packet()
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// If it is none of these messages, or one of another version.
    pub fn read(packet: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(packet);
        let message = match reader.byte()? {
            OPEN => {
                if reader.number()? != VERSION {
                    return Err(Malformed(
                        "another version of Slipstream: install the same on both sides",
                    ));
                }
                ToEngine::Open {
                    layout: reader.layout()?,
                    weight: reader.number()?,
                    aggregation: match reader.number()? {
                        0 => Aggregation::Adaptive,
                        count => Aggregation::Fixed(count),
                    },
                    token: match reader.bytes()? {
                        [] => None,
                        token => Some(
                            token
                                .try_into()
                                .map_err(|_| Malformed("length of a token"))?,
                        ),
                    },
                }
            }
            REGISTER_RSA => ToEngine::Register {
                policy: reader.policy()?,
                key: KeyParts::Rsa(Components {
                    modulus: reader.bytes()?,
                    public_exponent: reader.bytes()?,
                    prime1: reader.bytes()?,
                    prime2: reader.bytes()?,
                    exponent1: reader.bytes()?,
                    exponent2: reader.bytes()?,
                    coefficient: reader.bytes()?,
                }),
            },
            REGISTER_EC => ToEngine::Register {
                policy: reader.policy()?,
                key: KeyParts::Ec {
                    curve: *Curve::ALL
                        .get(usize::from(reader.byte()?))
                        .ok_or(Malformed("unknown curve"))?,
                    private: reader.bytes()?,
                },
            },
            REVOKE => ToEngine::Revoke(reader.handle()?),
            GRANT => ToEngine::Grant,
            STATUS => ToEngine::Status,
            _ => return Err(Malformed("unknown kind of message")),
        };
        reader.end()?;
        Ok(message)
    }
}

impl ToClient {
    /// Writes the message as a packet; it may hold a token.
    pub fn write(&self) -> Zeroizing<Vec<u8>> {
        let mut writer = Writer::new();
        match self {
            ToClient::Opened => writer.byte(OPENED),
            ToClient::Registered(handle) => {
                writer.byte(REGISTERED);
                writer.handle(*handle);
            }
            ToClient::Revoked => writer.byte(REVOKED),
            ToClient::Granted(token) => {
                writer.byte(GRANTED);
                writer.bytes(token);
            }
            ToClient::Status(text) => {
                writer.byte(FIGURES);
                writer.bytes(text.as_bytes());
            }
            ToClient::Refused(reason) => {
                writer.byte(REFUSED);
                writer.bytes(reason.as_bytes());
            }
        }
        writer.into_packet()
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// If it is none of these messages.
    pub fn read(packet: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(packet);
        let message = match reader.byte()? {
            OPENED => ToClient::Opened,
            REGISTERED => ToClient::Registered(reader.handle()?),
            REVOKED => ToClient::Revoked,
            GRANTED => {
                let token = reader.bytes()?.try_into();
                ToClient::Granted(token.map_err(|_| Malformed("length of a token"))?)
            }
            FIGURES => ToClient::Status(reader.text()?),
            REFUSED => ToClient::Refused(reader.text()?),
            _ => return Err(Malformed("unknown kind of message")),
        };
        reader.end()?;
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use slipstream_keys::example::example_key;
    use slipstream_keys::rsa::Size;

    use super::*;

    fn layout() -> Layout {
        let rings = Layout::new(256).expect("a power of two");
        rings.with_buffers(12, 65536).expect("in range")
    }

    fn open() -> Zeroizing<Vec<u8>> {
        let message = ToEngine::Open {
            layout: layout(),
            weight: 3,
            aggregation: Aggregation::Fixed(4),
            token: Some([7; 32]),
        };
        message.write()
    }

    #[test]
    fn messages_to_the_engine_come_back_as_they_were() {
        match ToEngine::read(&open()) {
            Ok(ToEngine::Open {
                layout,
                weight: 3,
                aggregation: Aggregation::Fixed(4),
                token: Some(token),
            }) => assert_eq!((layout, token), (self::layout(), [7; 32])),
            _ => panic!("not what was written"),
        }
        for size in Size::ALL {
            let components = example_key(size).components;
            let packet = ToEngine::Register {
                key: KeyParts::Rsa(components),
                policy: Policy::PSS,
            }
            .write();
            assert!(packet.len() <= MESSAGE_BYTES);
            let Ok(ToEngine::Register {
                key: KeyParts::Rsa(read),
                policy: Policy::PSS,
            }) = ToEngine::read(&packet)
            else {
                panic!("not what was written");
            };
            assert_eq!(read.modulus, components.modulus);
            assert_eq!(read.coefficient, components.coefficient);
        }
        let private = [5; 48];
        let curve = Curve::P384;
        let packet = ToEngine::Register {
            key: KeyParts::Ec {
                curve,
                private: &private,
            },
            policy: Policy::ANYTHING,
        }
        .write();
        assert!(matches!(
            ToEngine::read(&packet),
            Ok(ToEngine::Register {
                key: KeyParts::Ec {
                    curve: Curve::P384,
                    private: [5, ..]
                },
                policy: Policy::ANYTHING,
            })
        ));
        let mut strange = packet.to_vec();
        strange[1] = 0;
        assert!(ToEngine::read(&strange).is_err(), "a key for nothing");
        assert!(matches!(
            ToEngine::read(&ToEngine::Revoke(Handle(9)).write()),
            Ok(ToEngine::Revoke(Handle(9)))
        ));
        assert!(matches!(
            ToEngine::read(&ToEngine::Grant.write()),
            Ok(ToEngine::Grant)
        ));
        assert!(matches!(
            ToEngine::read(&ToEngine::Status.write()),
            Ok(ToEngine::Status)
        ));
    }

    #[test]
    fn messages_to_the_client_come_back_as_they_were() {
        for message in [
            ToClient::Opened,
            ToClient::Registered(Handle(u64::MAX - 1)),
            ToClient::Revoked,
            ToClient::Granted([9; 32]),
            ToClient::Status("{}".into()),
            ToClient::Refused("no".into()),
        ] {
            assert_eq!(ToClient::read(&message.write()), Ok(message));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = open();
        for length in 0..good.len() {
            assert!(ToEngine::read(&good[..length]).is_err(), "cut to {length}");
        }
        let mut long = good.to_vec();
        long.push(0);
        assert!(ToEngine::read(&long).is_err());
        let changed = |place: usize, byte: u8| {
            let mut packet = good.to_vec();
            packet[place] = byte;
            ToEngine::read(&packet).err()
        };
        assert!(changed(0, 99).is_some(), "kind");
        assert!(changed(1, VERSION as u8 + 1).is_some(), "version");
        assert!(changed(5, 3).is_some(), "slots that are no power of two");
        assert!(changed(9, 65).is_some(), "buffers");
        assert!(changed(15, 17).is_some(), "content of more than a megabyte");
        assert!(changed(9, 0).is_some(), "the length of no buffers");
        assert!(changed(25, 31).is_some(), "length of the token");
        assert!(ToClient::read(&[]).is_err());
    }
}
