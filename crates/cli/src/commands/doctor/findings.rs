//! The findings, and their table.

use std::fmt;
use std::process::ExitCode;

use serde::Serialize;
use slipstream_testbed::machine::Machine;

#[derive(Serialize)]
pub(super) struct Findings {
    pub(super) machine: Machine,
    pub(super) checks: Vec<Check>,
}

#[derive(Serialize)]
pub(super) struct Check {
    name: &'static str,
    pub(super) status: Status,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    /// There and working.
    Ok,
    /// Working, but not at its best.
    Note,
    /// Not there or not working.
    Missing,
}

impl Findings {
    pub(super) fn exit_code(&self) -> ExitCode {
        if self
            .checks
            .iter()
            .any(|check| check.status == Status::Missing)
        {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            let status = match check.status {
                Status::Ok => "ok",
                Status::Note => "note",
                Status::Missing => "MISSING",
            };
            writeln!(formatter, "{status:<8} {:<12} {}", check.name, check.detail)?;
            if let Some(cure) = &check.cure {
                writeln!(formatter, "{:<21} -> {cure}", "")?;
            }
        }
        Ok(())
    }
}

impl Check {
    pub(super) fn ok(name: &'static str, detail: impl Into<String>) -> Check {
        Check {
            name,
            status: Status::Ok,
            detail: detail.into(),
            cure: None,
        }
    }

    pub(super) fn note(
        name: &'static str,
        detail: impl Into<String>,
        cure: impl Into<String>,
    ) -> Check {
        Check {
            name,
            status: Status::Note,
            detail: detail.into(),
            cure: Some(cure.into()),
        }
    }

    pub(super) fn missing(
        name: &'static str,
        detail: impl Into<String>,
        cure: impl Into<String>,
    ) -> Check {
        Check {
            status: Status::Missing,
            ..Check::note(name, detail, cure)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_missing_makes_the_exit_code_and_a_note_does_not() {
        let findings = |checks| Findings {
            machine: Machine::describe(None),
            checks,
        };
        let note = || Check::note("a", "b", "do c");
        assert_eq!(findings(vec![note()]).exit_code(), ExitCode::SUCCESS);
        let missing = findings(vec![note(), Check::missing("d", "e", "do f")]);
        assert_eq!(missing.exit_code(), ExitCode::FAILURE);
        let text = missing.to_string();
        assert!(text.contains("MISSING  d"), "{text}");
        assert!(text.contains("-> do f"), "{text}");
    }
}
