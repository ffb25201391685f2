//! Reading memcheck's report (docs/internals/xml-output-protocol4.txt in valgrind's source).

use core::fmt;

/// A branch or an address that depends on a secret.
#[derive(PartialEq, Eq, Debug)]
pub struct Finding {
    pub kind: Kind,
    /// The functions of this package and of `keys` that were running, inlined ones too, the
    /// innermost first.
    pub stack: Vec<Function>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Branch,
    Address,
    /// For example memory that a system call reads.
    Other,
}

/// A function and a line in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Without its path and parameters. The name of a closure begins with a brace, and valgrind
    /// does not know every name.
    pub name: String,
    /// Relative to this package; that of a function of `keys` begins with `../keys/`.
    pub file: String,
    pub line: String,
}

impl Finding {
    /// The innermost function. If that is a closure, the function of the same file that runs it.
    pub fn place(&self) -> Option<&Function> {
        let innermost = self.stack.first()?;
        let named = self
            .stack
            .iter()
            .find(|function| !function.name.starts_with('{'))
            .filter(|function| function.file == innermost.file);
        Some(named.unwrap_or(innermost))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{:?} depends on a secret:", self.kind)?;
        for Function { name, file, line } in &self.stack {
            writeln!(formatter, "    {name} ({file}:{line})")?;
        }
        Ok(())
    }
}

/// The findings in a report.
pub fn findings(report: &str) -> Vec<Finding> {
    elements(report, "error")
        .map(|error| Finding {
            kind: match element(error, "kind") {
                "UninitCondition" => Kind::Branch,
                "UninitValue" => Kind::Address,
                _ => Kind::Other,
            },
            stack: elements(element(error, "stack"), "frame")
                .filter_map(own_function)
                .collect(),
        })
        .collect()
}

/// The function of a stack frame if it belongs to this package or to `keys`.
fn own_function(frame: &str) -> Option<Function> {
    let (package, crates) = (PACKAGE, PACKAGE.strip_suffix("lanes")?);
    let path = format!("{}/{}", element(frame, "dir"), element(frame, "file"));
    let file = match path.strip_prefix(package) {
        Some(file) => file.strip_prefix('/')?.to_owned(),
        None => {
            let file = path.strip_prefix(crates)?;
            file.starts_with("keys/").then(|| format!("../{file}"))?
        }
    };
    Some(Function {
        name: short_name(element(frame, "fn")),
        file,
        line: element(frame, "line").to_owned(),
    })
}

/// The path of this package.
const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

/// The last part of a path, without generic parameters.
fn short_name(path: &str) -> String {
    let path = path.replace("-&gt;", "");
    let mut depth = 0;
    let mut plain = String::new();
    for part in path
        .split_inclusive("&lt;")
        .flat_map(|part| part.split_inclusive("&gt;"))
    {
        let text = part.trim_end_matches("&lt;").trim_end_matches("&gt;");
        if depth == 0 {
            plain += text;
        }
        depth += i32::from(part.ends_with("&lt;")) - i32::from(part.ends_with("&gt;"));
    }
    let name = plain.split("::").filter(|part| !part.is_empty()).last();
    name.unwrap_or_default().to_owned()
}

/// The content of the first element with this name; empty if there is none.
fn element<'a>(text: &'a str, name: &str) -> &'a str {
    elements(text, name).next().unwrap_or_default()
}

fn elements<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (start, end) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = text;
    core::iter::from_fn(move || {
        let (_, tail) = rest.split_once(&start)?;
        let (content, tail) = tail.split_once(&end)?;
        rest = tail;
        Some(content)
    })
}

#[test]
fn findings_are_read_with_our_own_functions() {
    let keys = PACKAGE
        .strip_suffix("lanes")
        .expect("the name of this package");
    let report = format!(
        "<valgrindoutput><error><kind>UninitCondition</kind><stack>\
         <frame><fn>is_ok&lt;(), fn(&amp;u8) -&gt; bool&gt;</fn><dir>/rustc/1</dir><file>library/core/result.rs</file></frame>\
         <frame><fn>{{closure#0}}</fn><dir>{PACKAGE}/src</dir><file>a.rs</file><line>1</line></frame>\
         <frame><fn>&lt;lanes::A as lanes::B&lt;C&gt;&gt;::run::&lt;D, fn() -&gt; E&gt;</fn>\
         <dir>{PACKAGE}/src</dir><file>a.rs</file><line>2</line></frame>\
         <frame><fn>new</fn><dir>{keys}keys/src</dir><file>ec.rs</file><line>3</line></frame>\
         <frame><fn>poll</fn><dir>{keys}offload/src</dir><file>a.rs</file><line>4</line></frame>\
         </stack><auxwhat>allocated</auxwhat><stack><frame><fn>malloc</fn></frame></stack></error>\
         <errorcounts></errorcounts></valgrindoutput>"
    );
    let function = |name: &str, line: &str| Function {
        name: name.to_owned(),
        file: "src/a.rs".to_owned(),
        line: line.to_owned(),
    };
    let in_keys = Function {
        file: "../keys/src/ec.rs".to_owned(),
        ..function("new", "3")
    };
    let expected = Finding {
        kind: Kind::Branch,
        stack: vec![function("{closure#0}", "1"), function("run", "2"), in_keys],
    };
    let mut found = findings(&report);
    assert_eq!(found, [expected]);
    assert_eq!(found[0].place(), Some(&function("run", "2")));
    // A closure from another file is not excused by the function that it was inlined into.
    found[0].stack[0].file = "src/b.rs".to_owned();
    assert_eq!(found[0].place(), found[0].stack.first());
}
