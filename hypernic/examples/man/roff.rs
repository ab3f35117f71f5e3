//! From the Markdown of our own pages to roff: headings, paragraphs, lists, tables and blocks of code.

use std::fmt::Write as _;

/// The same text as a part of a manual page.
pub fn page(text: &str) -> String {
    let mut out = String::new();
    let (mut code, mut paragraph) = (false, String::new());
    for line in text.lines() {
        let fence = line.starts_with("```");
        let ends =
            fence || line.is_empty() || line.starts_with(['#', '|']) || line.starts_with("- ");
        if ends && !code && !paragraph.is_empty() {
            let _ = writeln!(out, ".PP\n{}", inline(&paragraph));
            paragraph.clear();
        }
        if fence {
            code = !code;
            out.push_str(if code {
                ".PP\n.RS 4\n.nf\n"
            } else {
                ".fi\n.RE\n"
            });
        } else if code {
            let _ = writeln!(out, "{}", escape(line));
        } else if let Some(title) = line.strip_prefix("## ") {
            let _ = writeln!(
                out,
                ".SH \"{}\"",
                escape(&title.replace('`', "").to_uppercase())
            );
        } else if let Some(title) = line.strip_prefix("### ") {
            let _ = writeln!(out, ".SS \"{}\"", escape(&title.replace('`', "")));
        } else if line.starts_with('|') {
            row(&mut out, line);
        } else if let Some(item) = line.strip_prefix("- ") {
            let _ = writeln!(out, ".IP \\(bu 2\n{}", inline(item));
        } else if !line.is_empty() {
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph.push_str(line.trim());
        }
    }
    if !paragraph.is_empty() {
        let _ = writeln!(out, ".PP\n{}", inline(&paragraph));
    }
    out
}

/// A row of a table: its first cell is the word, the others say what it means.
fn row(out: &mut String, line: &str) {
    let line = line.trim_matches('|').replace("\\|", "\u{1}");
    let cells: Vec<_> = line
        .split('|')
        .map(|cell| cell.trim().replace('\u{1}', "|"))
        .collect();
    if cells.iter().all(|cell| cell.chars().all(|c| c == '-')) {
        return;
    }
    let Some((word, rest)) = cells.split_first() else {
        return;
    };
    let rest: Vec<_> = rest.iter().filter(|cell| !cell.is_empty()).collect();
    // The head of a table, whose first cell has no code, names its columns.
    if !word.contains('`') {
        return;
    }
    let _ = writeln!(out, ".TP\n{}", inline(word));
    if let Some((what, default)) = rest.split_first() {
        let _ = writeln!(out, "{}", inline(what));
        for word in default {
            let _ = writeln!(out, ".br\nDefault: {}", inline(word));
        }
    }
}

/// Code becomes bold, links their text.
fn inline(text: &str) -> String {
    let mut out = String::new();
    let text = links(&text.replace("**", ""));
    let mut parts = text.split('`');
    while let Some(plain) = parts.next() {
        out.push_str(&escape(plain));
        let Some(code) = parts.next() else { break };
        let _ = write!(out, "\\fB{}\\fR", escape(code));
    }
    // A line that begins with a dot or a quote would be a request.
    if out.starts_with(['.', '\'']) {
        out.insert_str(0, "\\&");
    }
    out
}

/// Links become their text.
fn links(text: &str) -> String {
    let mut out = text.to_owned();
    while let Some(middle) = out.find("](") {
        let from = out[..middle].rfind('[');
        let to = out[middle..].find(')').map(|at| middle + at);
        let (Some(from), Some(to)) = (from, to) else {
            break;
        };
        let name = out[from + 1..middle].to_owned();
        out.replace_range(from..=to, &name);
    }
    out
}

fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}
