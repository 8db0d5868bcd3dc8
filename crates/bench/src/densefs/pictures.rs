//! Cachemaps and flame graphs of chosen calls, as files and as parts of a page that answers clicks.

use super::Options;
use super::flame::{Flame, escape};
use super::map::Map;
use super::names::{Known, Names};
use super::stacks::Stacks;
use super::trace::{Traced, chosen};
use std::fmt::Write;
use std::path::Path;

/// Calls that are drawn.
const DRAWN: [&str; 2] = ["stat", "create+close"];

/// What a page has once, for all cachemaps: the answer to a click.
pub const SCRIPT: &str = r#"<script>
function lineAt(map, event) {
  const box = map.getBoundingClientRect(), a = map.answers;
  const x = (event.clientX - box.left) * map.viewBox.baseVal.width / box.width;
  const y = (event.clientY - box.top) * map.viewBox.baseVal.height / box.height - a.top;
  if (y < 0) return null;
  const step = 64 * a.cell + a.gap, row = Math.floor(y / a.cell);
  let column = Math.floor(x / step), which = 0, left = x - column * step;
  if (column >= a.columns) { column = Math.floor((x - a.gap) / step) - a.columns; which = 1; left = x - a.gap - (column + a.columns) * step; }
  if (row >= a.rows || column < 0 || left < 0 || left >= 64 * a.cell) return null;
  const line = a.lines[which][column * a.rows + row];
  return line && { kind: which ? 'data' : 'code', address: line[0], stacks: line[1], byte: Math.floor(left / a.cell) };
}
function tell(map, event) {
  const line = lineAt(map, event), out = map.parentNode.querySelector('pre');
  if (!line) { out.textContent = ''; return; }
  let text = line.kind + ' line 0x' + line.address + ', byte ' + line.byte + '\n';
  for (const [stack, times] of line.stacks.sort((a, b) => b[1] - a[1])) text += times + ' × ' + map.answers.stacks[stack].split(';').join('\n      ') + '\n';
  out.textContent = text;
}
for (const data of document.querySelectorAll('script.answers')) {
  const map = data.parentNode.querySelector('svg');
  map.answers = JSON.parse(data.textContent);
  map.style.cursor = 'crosshair';
  map.addEventListener('click', event => tell(map, event));
}
</script>"#;

/// One call's pictures.
struct Pictures {
    call: &'static str,
    place: String,
    map: Map,
    parts: Flame,
    functions: Flame,
}

fn all(traced: &[Traced], kernel: Option<&Names>) -> Result<Vec<Pictures>, String> {
    let program = Names::of_self()?;
    let mut places: Vec<&str> = traced.iter().map(|one| one.place.as_str()).collect();
    places.dedup();
    let mut pictures = Vec::new();
    for call in DRAWN {
        for place in &places {
            let Some(one) = chosen(traced, place, call) else { continue };
            let names = if *place == "image" { Some(&program) } else { kernel };
            let Some(names) = names else { continue };
            let stacks = Stacks::of(&one.look, &mut Known::new(names, one.bias));
            let [parts, functions] = [true, false].map(|by_parts| Flame::of(&stacks, by_parts));
            pictures.push(Pictures { call, place: place.to_string(), map: Map::of(&stacks), parts, functions });
        }
    }
    Ok(pictures)
}

impl Pictures {
    fn title(&self) -> String {
        let [code, data] = self.map.counts();
        format!("{} on {}: {code} lines of code, {data} of data", self.call, self.place)
    }

    fn file(&self, kind: &str) -> String {
        format!("{kind}-{}-{}.svg", self.call.split('+').next().unwrap_or(self.call), self.place)
    }
}

/// Writes what is asked for.
pub fn write(traced: &[Traced], kernel: Option<&Names>, options: &Options) -> Result<(), String> {
    if options.page.is_none() && options.pictures.is_none() {
        return Ok(());
    }
    let pictures = all(traced, kernel)?;
    let put = |path: &Path, text: String| std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()));
    if let Some(dir) = &options.pictures {
        std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        for one in &pictures {
            put(&dir.join(one.file("cachemap")), one.map.svg(&escape(&one.title())))?;
            put(&dir.join(one.file("cgstack")), one.parts.svg(&one.title()))?;
        }
    }
    match &options.page {
        Some(path) => put(path, page(&pictures)?),
        None => Ok(()),
    }
}

/// All of them; the calls' names are headings.
fn page(pictures: &[Pictures]) -> Result<String, String> {
    let mut text = String::from("<!doctype html><meta charset='utf-8'><title>Cachemaps and flame graphs</title>\n");
    text += "<p>Cachemaps: a row is a line of 64 bytes that the call touched, by address; a cell is a byte, the colour says how often, from \
             once (dark blue) to more than a hundred times (red). Code on the left, data on the right. A click shows by whom.</p>\n";
    for call in DRAWN {
        let of_call = || pictures.iter().filter(|one| one.call == call);
        let _ = writeln!(text, "<h4>Cachemaps of {call}</h4>");
        for one in of_call() {
            let answers = serde_json::to_string(&one.map.answers()).map_err(|e| e.to_string())?.replace("</", "<\\/");
            let svg = one.map.svg(&escape(&one.title()));
            let _ = writeln!(
                text,
                "<figure>{svg}<script class='answers' type='application/json'>{answers}</script><pre></pre></figure>"
            );
        }
        let _ = writeln!(text, "<h4>Flame graphs of {call}: bytes of code by part, then by function</h4>");
        for one in of_call() {
            let title = format!("{} on {}", one.call, one.place);
            let _ = writeln!(text, "<figure>{}</figure>", one.parts.svg(&title));
            let _ =
                writeln!(text, "<details><summary>by function</summary><figure>{}</figure></details>", one.functions.svg(&title));
        }
    }
    Ok(text + SCRIPT)
}
