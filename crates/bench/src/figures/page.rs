//! The page: a list of all figures and whether they were made, then each with its numbers beside the paper's. All of it in one file.

use super::{Made, Said};
use serde_json::Value;
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.45 sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:.6em 0}td,th{border:1px solid #ccc;padding:2px 8px;text-align:right}\
td:first-child,th:first-child{text-align:left}h2{border-bottom:2px solid #888;margin-top:2em}\
.left{color:#a40}figure{margin:.5em 0;overflow-x:auto}figure pre{font-size:12px;max-height:24em;overflow:auto;margin:.2em 0}\
details{margin:.5em 0}blockquote{margin:.4em 0;padding:.2em 1em;border-left:4px solid #79b;background:#f4f7fa}svg{max-width:none}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Words with `code` in them.
fn words(text: &str) -> String {
    let mut parts = escape(text).split('`').map(str::to_string).collect::<Vec<_>>();
    parts.iter_mut().skip(1).step_by(2).for_each(|code| *code = format!("<code>{code}</code>"));
    parts.concat()
}

/// The figures of a report that have a name.
fn reported<'a>(made: &'a Made, id: &str) -> Vec<&'a Value> {
    let figures = made.json.as_ref().and_then(|json| json["figures"].as_array());
    figures.map_or(Vec::new(), |all| all.iter().filter(|figure| figure["figure"] == id).collect())
}

/// A table of a report's.
fn table(figure: &Value) -> String {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| escape(value.as_str().unwrap_or(""));
    let mut out = format!("<p>{}; {}</p><table><tr><th></th>", text(&figure["title"]), text(&figure["unit"]));
    list(&figure["columns"]).iter().for_each(|column| _ = write!(out, "<th>{}</th>", text(column)));
    out += "</tr>\n";
    for row in list(&figure["rows"]) {
        let _ = write!(out, "<tr><td>{}</td>", text(&row["name"]));
        list(&row["values"]).iter().for_each(|value| _ = write!(out, "<td>{}</td>", crate::figure::shown(value.as_f64())));
        out += "</tr>\n";
    }
    out + "</table>"
}

/// Of each row, how much less or more the first column is than the second.
fn compared(figure: &Value, columns: &[String]) -> Option<String> {
    let at = |name: &str| figure["columns"].as_array()?.iter().position(|column| column == name);
    let (first, second) = (at(columns.first()?)?, at(columns.get(1)?)?);
    let mut said = Vec::new();
    for row in figure["rows"].as_array()? {
        if let (Some(one), Some(other)) = (row["values"][first].as_f64(), row["values"][second].as_f64())
            && other != 0.0
        {
            said.push(format!("{} {:+.0} %", row["name"].as_str()?, (one / other - 1.0) * 100.0));
        }
    }
    (!said.is_empty()).then(|| format!("<p>{} against {}: {}.</p>", columns[0], columns[1], escape(&said.join(", "))))
}

/// Tables of Markdown whose headings hold a text; none: all.
fn of_markdown(text: &str, wanted: &str) -> String {
    let (mut out, mut inside, mut table) = (String::new(), false, 0);
    for line in text.lines() {
        let heading = line.starts_with("**") || (!line.starts_with('|') && !line.trim().is_empty());
        if heading {
            inside = line.contains(wanted);
        }
        if !line.starts_with('|') && table > 0 {
            out += "</table>\n";
            table = 0;
        }
        if !inside || line.starts_with("|---") || line.trim().is_empty() {
            continue;
        }
        if !line.starts_with('|') {
            let _ = writeln!(out, "<p>{}</p>", escape(line.trim_matches('*')));
            continue;
        }
        if table == 0 {
            out += "<table>";
        }
        let cell = if table == 0 { "th" } else { "td" };
        let cells = line.trim_matches('|').split('|').map(|text| format!("<{cell}>{}</{cell}>", escape(text.trim())));
        let _ = writeln!(out, "<tr>{}</tr>", cells.collect::<String>());
        table += 1;
    }
    if table > 0 { out + "</table>" } else { out }
}

/// What there is of a figure.
fn numbers(made: &Made, said: &Said) -> Option<String> {
    if said.pictures {
        return made.pictures.as_ref().map(|_| "<p>See the pictures below.</p>".to_string());
    }
    let tables: String = reported(made, &said.id)
        .iter()
        .map(|figure| table(figure) + &compared(figure, &said.compare).unwrap_or_default())
        .collect();
    let tables = if tables.is_empty() && made.json.is_none() { of_markdown(&made.text, &said.id) } else { tables };
    (tables.contains("<td>")).then_some(tables)
}

/// Whether a figure was made, for the list.
fn status(made: Option<&Made>, said: &Said) -> String {
    match (&said.elsewhere, made) {
        (Some(why), _) => format!("<span class='left'>not here: {}</span>", words(why)),
        (None, None) => "<span class='left'>not asked for</span>".into(),
        (None, Some(made)) => match (numbers(made, said), &made.failure) {
            (Some(_), _) => "made".into(),
            (None, Some(why)) => format!("<span class='left'>{}</span>", escape(why)),
            (None, None) => "<span class='left'>left out, see the reasons there</span>".into(),
        },
    }
}

fn name(said: &Said) -> String {
    let number = said.id.starts_with(|c: char| c.is_ascii_digit()) || said.id.starts_with("table");
    format!("{} {}{}", said.paper, if number { "figure " } else { "" }, said.id).replace("figure table", "table ")
}

/// The page.
pub fn page(made: &[Made], said: &[Said]) -> String {
    let of = |paper: &str| made.iter().find(|made| made.paper.name == paper);
    let mut out = format!(
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>The figures of five papers, made again</title><style>{STYLE}</style>\n"
    );
    out += "<h1>The figures of five papers, made again</h1><p>Written by <code>make figures</code>. Each figure: the paper's numbers, this \
            machine's, what is the same, what differs, and why.</p>\n<table><tr><th>figure</th><th>here</th></tr>\n";
    for (at, one) in said.iter().enumerate() {
        let _ = writeln!(
            out,
            "<tr><td><a href='#f{at}'>{}</a></td><td>{}</td></tr>",
            escape(&name(one)),
            status(of(&one.paper), one)
        );
    }
    out += "</table>\n";
    for made in made {
        let _ = writeln!(out, "<h2>{}</h2><p>{} s.</p>", made.paper.title, made.seconds);
        let left_out = made.text.lines().filter(|line| line.starts_with("left out: "));
        left_out.for_each(|line| _ = writeln!(out, "<p class='left'>{}</p>", words(line)));
        if let Some(line) = made.text.lines().find(|line| !line.trim().is_empty()) {
            let _ = writeln!(out, "<p>{}</p>", escape(line));
        }
        for (at, one) in said.iter().enumerate().filter(|(_, one)| one.paper == made.paper.name) {
            let _ = writeln!(
                out,
                "<h3 id='f{at}'>{}</h3><blockquote>The paper: {}</blockquote>",
                escape(&name(one)),
                words(&one.says)
            );
            let _ = writeln!(out, "{}", numbers(made, one).unwrap_or_else(|| format!("<p>{}</p>", status(Some(made), one))));
            let _ = writeln!(out, "<p>{}</p>", words(&one.why));
        }
        if let Some(pictures) = &made.pictures {
            let body = pictures.split_once("</title>").map_or(pictures.as_str(), |(_, body)| body);
            let _ = writeln!(out, "<h3>Pictures</h3>{body}");
        }
        if let Some(svg) = &made.svg {
            let _ = writeln!(out, "<details><summary>All numbers as bars</summary><figure>{svg}</figure></details>");
        }
    }
    out + "</html>\n"
}

#[cfg(test)]
mod tests {
    use super::super::PAPERS;
    use super::*;

    fn said(id: &str) -> Said {
        let (says, why) = ("less".into(), "because of `x`".into());
        let compare = vec!["a".into(), "b".into()];
        Said { paper: PAPERS[0].name.into(), id: id.into(), says, why, compare, pictures: false, elsewhere: None }
    }

    /// Goal: numbers stand beside the paper's, and what was not made is said. Method: a report with one of two figures.
    #[test]
    fn what_was_made_and_what_not() {
        let figure = r#"{"figures":[{"figure":"3","title":"t","unit":"ns","columns":["a","b"],"rows":[{"name":"stat","values":[5.0,10.0]}]}]}"#;
        let json = serde_json::from_str(figure).ok();
        let text = "machine\n\nleft out: the moon\n".into();
        let made = Made { paper: &PAPERS[0], text, json, svg: None, pictures: None, failure: None, seconds: 1 };
        let page = page(&[made], &[said("3"), said("4")]);
        assert!(page.contains("a against b: stat -50 %."), "{page}");
        assert!(
            page.contains("<td>made</td>")
                && page.contains("left out, see the reasons there")
                && page.contains("left out: the moon")
        );
        assert!(page.contains("because of <code>x</code>"));
    }

    /// Goal: tables of Markdown are found by their headings. Method: two.
    #[test]
    fn tables_of_markdown() {
        let text = "**one: x**\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nTwo y\n\n| c |\n|---|\n| 3 |\n";
        assert_eq!(of_markdown(text, "Two"), "<p>Two y</p>\n<table><tr><th>c</th></tr>\n<tr><td>3</td></tr>\n</table>");
        assert!(of_markdown(text, "one").contains("<td>2</td>") && !of_markdown(text, "one").contains('3'));
    }
}
