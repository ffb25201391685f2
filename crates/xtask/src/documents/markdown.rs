//! The part of Markdown that the checks need: headings, links, tables, and fenced blocks to leave
//! out.

use std::collections::{BTreeMap, BTreeSet};

/// A document.
pub(super) struct Page {
    lines: Vec<Line>,
    anchors: BTreeSet<String>,
    links: Vec<(usize, String)>,
}

/// A line outside of fenced blocks.
struct Line {
    /// From 1.
    number: usize,
    text: String,
}

impl Page {
    /// Reads a document.
    pub(super) fn parse(text: &str) -> Self {
        let lines = outside_fences(text);
        let anchors = anchors(&lines);
        let links = lines
            .iter()
            .flat_map(|line| {
                let links = links(&without_code(&line.text)).into_iter();
                links.map(|link| (line.number, link))
            })
            .collect();
        Self {
            lines,
            anchors,
            links,
        }
    }

    /// The anchors of its headings, as GitHub and mdBook make them.
    pub(super) fn anchors(&self) -> &BTreeSet<String> {
        &self.anchors
    }

    /// The targets of its links and images, by line.
    pub(super) fn links(&self) -> &[(usize, String)] {
        &self.links
    }

    /// Returns the problems of its tables, by line: a row with another number of cells than the
    /// head, or rows without a head.
    pub(super) fn tables(&self) -> Vec<(usize, String)> {
        let mut problems = Vec::new();
        let mut columns = None;
        for (index, line) in self.lines.iter().enumerate() {
            let text = line.text.trim();
            if !text.starts_with('|') {
                columns = None;
                continue;
            }
            let count = cells(text);
            match columns {
                None => {
                    columns = Some(count);
                    let next = self.lines.get(index + 1).map(|line| line.text.trim());
                    if !next.is_some_and(is_separator) {
                        problems.push((line.number, "a table without a head".to_owned()));
                    }
                }
                Some(expected) if expected != count => {
                    let text = format!("{count} cells in a table of {expected} columns");
                    problems.push((line.number, text));
                }
                Some(_) => {}
            }
        }
        problems
    }

    /// Returns the problems of its entries, by line. An entry is a heading of the third level; one
    /// of a variable (`$name`) needs a text only.
    pub(super) fn entries(&self) -> Vec<(usize, String)> {
        let mut problems = Vec::new();
        let mut lines = self.lines.iter().peekable();
        while let Some(line) = lines.next() {
            let Some(name) = line.text.strip_prefix("### ") else {
                continue;
            };
            let mut wanted: Vec<&str> = match name.starts_with('$') {
                true => Vec::new(),
                false => vec!["- Syntax: `", "- Default: ", "- Context: "],
            };
            let mut has_text = false;
            while let Some(line) = lines.next_if(|line| !line.text.starts_with('#')) {
                match wanted.first() {
                    Some(prefix) if line.text.starts_with(prefix) => {
                        wanted.remove(0);
                    }
                    _ => has_text |= line.text.starts_with(char::is_uppercase),
                }
            }
            if let Some(missing) = wanted.first() {
                problems.push((line.number, format!("{name} lacks \"{missing}\"")));
            }
            if !has_text {
                problems.push((line.number, format!("{name} lacks a text")));
            }
        }
        problems
    }
}

fn outside_fences(text: &str) -> Vec<Line> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let trimmed = text.trim_start();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
            (None, None) => lines.push(Line {
                number: index + 1,
                text: text.to_owned(),
            }),
        }
    }
    lines
}

/// A line whose code spans are blank.
fn without_code(line: &str) -> String {
    let mut is_code = false;
    line.chars()
        .map(|character| {
            is_code ^= character == '`';
            if is_code { ' ' } else { character }
        })
        .collect()
}

/// The targets of `[text](target)`, `[label]: target`, `src="target"` and `href="target"`.
fn links(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut add = |from: &str, end: &[char]| {
        let target = &from[..from.find(end).unwrap_or(from.len())];
        if !target.is_empty() {
            found.push(target.to_owned());
        }
    };
    for (opening, end) in [("](", ')'), ("src=\"", '"'), ("href=\"", '"')] {
        for (start, _) in line.match_indices(opening) {
            add(&line[start + opening.len()..], &[end, ' ']);
        }
    }
    if let (true, Some((_, target))) = (line.starts_with('['), line.split_once("]: ")) {
        add(target, &[' ']);
    }
    found
}

fn anchors(lines: &[Line]) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for line in lines {
        let title = line.text.trim_start_matches('#');
        let level = line.text.len() - title.len();
        if !(1..=6).contains(&level) || !title.starts_with(' ') {
            continue;
        }
        let anchor = anchor(title);
        let count = seen.entry(anchor.clone()).or_default();
        anchors.insert(match *count {
            0 => anchor,
            count => format!("{anchor}-{count}"),
        });
        *count += 1;
    }
    anchors
}

fn anchor(title: &str) -> String {
    // Of a link, only the text counts.
    let mut text = String::new();
    let mut rest = title.trim();
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text.chars()
        .filter_map(|character| match character {
            ' ' => Some('-'),
            '-' | '_' => Some(character),
            _ if character.is_alphanumeric() => Some(character),
            _ => None,
        })
        .flat_map(char::to_lowercase)
        .collect()
}

/// The number of cells of a row; `\|` stands for a bar in a cell.
fn cells(row: &str) -> usize {
    let bars = row.replace("\\|", "").matches('|').count();
    bars - usize::from(row.ends_with('|'))
}

fn is_separator(row: &str) -> bool {
    row.starts_with('|') && row.contains('-') && row.chars().all(|c| "|-: ".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code() {
        let page = Page::parse(
            "[a](one.md) and ![b](two.svg \"title\") `[c](three.md)`\n```\n[d](four.md)\n```\n\
             [e]: five.md\n<img src=\"six.svg\">",
        );
        let links: Vec<(usize, &str)> = page
            .links()
            .iter()
            .map(|(line, link)| (*line, link.as_str()))
            .collect();
        assert_eq!(
            links,
            [
                (1, "one.md"),
                (1, "two.svg"),
                (5, "five.md"),
                (6, "six.svg")
            ]
        );
    }

    #[test]
    fn headings_have_the_anchors_of_github() {
        let page = Page::parse(
            "# A `slipstream { ... }` block\n## [[listener]]\n### listener.listen\n## Twice\n## Twice\n\
             ## See [this](that.md)\n#no heading\n```\n# no heading\n```",
        );
        let expected = [
            "a-slipstream----block",
            "listener",
            "listenerlisten",
            "twice",
            "twice-1",
            "see-this",
        ];
        assert_eq!(page.anchors(), &expected.map(str::to_owned).into());
    }

    #[test]
    fn a_table_that_is_cut_in_two_is_found() {
        let page = Page::parse("| a | b |\n|---|---|\n| `x \\| y` | 2 |\n\n| 3 | 4 |\n");
        assert_eq!(page.tables(), [(5, "a table without a head".to_owned())]);
        let page = Page::parse("| a | b |\n|---|---|\n| 1 | 2 | 3 |\n");
        assert_eq!(
            page.tables(),
            [(3, "3 cells in a table of 2 columns".to_owned())]
        );
    }

    #[test]
    fn an_entry_has_syntax_default_context_and_a_text() {
        let whole =
            "### a\n\n- Syntax: `a;`\n- Default: none\n- Context: http\n\nDoes something.\n";
        assert!(Page::parse(whole).entries().is_empty());
        assert!(Page::parse("### $a\n\nA variable.\n").entries().is_empty());
        for (part, problem) in [
            ("- Syntax: `a;`\n", "a lacks \"- Syntax: `\""),
            ("- Default: none\n", "a lacks \"- Default: \""),
            ("- Context: http\n", "a lacks \"- Context: \""),
            ("Does something.\n", "a lacks a text"),
        ] {
            let page = Page::parse(&whole.replace(part, ""));
            assert_eq!(page.entries(), [(1, problem.to_owned())]);
        }
    }
}
