//! `bypath top`: figures on a terminal, again and again.

use super::rates::{Rates, short};
use super::sample::{Image, Process, Sample, Watch};
use crate::failure::{Failure, Result};
use crate::size;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Row, Table};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// What processes are ordered by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Calls,
    Changes,
    Fds,
    Pid,
}

/// What is on the screen.
struct View<'a> {
    sample: &'a Sample,
    rates: &'a Rates,
    order: Order,
}

/// Until `q`, Escape or Ctrl-C.
pub fn run(watch: &mut Watch, interval: Duration) -> Result<()> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::new("top: this is no terminal; `bypath stats` prints the figures once"));
    }
    let mut terminal = ratatui::try_init().map_err(|error| Failure::io("terminal", &error))?;
    let result = show(&mut terminal, watch, interval);
    ratatui::restore();
    result.map_err(|error| Failure::io("terminal", &error))
}

fn show(terminal: &mut ratatui::DefaultTerminal, watch: &mut Watch, interval: Duration) -> std::io::Result<()> {
    let (mut rates, mut order, mut before) = (Rates::default(), Order::Calls, Instant::now());
    loop {
        let sample = watch.sample();
        rates.note(&sample, before.elapsed().as_secs_f64());
        before = Instant::now();
        loop {
            terminal.draw(|frame| draw(frame, &View { sample: &sample, rates: &rates, order }))?;
            let left = interval.saturating_sub(before.elapsed());
            if left.is_zero() || !event::poll(left)? {
                break;
            }
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                    KeyCode::Char('c') => order = Order::Calls,
                    KeyCode::Char('w') => order = Order::Changes,
                    KeyCode::Char('f') => order = Order::Fds,
                    KeyCode::Char('p') => order = Order::Pid,
                    _ => {}
                },
                _ => {}
            }
        }
        if watch.of_sessions() {
            watch.find();
        }
    }
}

fn draw(frame: &mut Frame, view: &View) {
    let sample = view.sample;
    let heights = [
        Constraint::Length(1),
        Constraint::Length(sample.images.len() as u16 + 2),
        Constraint::Length(if sample.mounts.is_empty() { 0 } else { sample.mounts.len() as u16 + 2 }),
        Constraint::Min(1),
    ];
    let [title, images, mounts, processes] = Layout::vertical(heights).areas(frame.area());
    frame.render_widget(Line::from(head(sample)), title);
    frame.render_widget(image_table(view), images);
    frame.render_widget(mount_table(sample), mounts);
    frame.render_widget(process_table(view), processes);
}

fn head(sample: &Sample) -> String {
    let programs: usize = sample.images.iter().map(|image| image.processes.len()).sum();
    let hidden = match sample.unreadable.len() {
        0 => String::new(),
        count => format!(", {count} not shown (bypath stats says why)"),
    };
    let images = sample.images.len();
    format!("bypath top: {images} images, {programs} users{hidden}.  order: c calls  w changes  f fds  p pid   q ends")
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// Columns of figures, right-aligned under their titles; the first one is text and takes what is left.
fn table<'a>(titles: &'static [&'static str], widths: &[u16], rows: Vec<Vec<String>>) -> Table<'a> {
    let aligned = |cells: Vec<String>| {
        let cells = cells.into_iter().enumerate().map(|(column, cell)| {
            let line = Line::from(cell);
            if column == 0 { line } else { line.right_aligned() }
        });
        Row::new(cells.collect::<Vec<_>>())
    };
    let head = aligned(titles.iter().map(|title| title.to_string()).collect()).style(bold());
    let columns = widths.iter().map(|width| if *width == 0 { Constraint::Min(20) } else { Constraint::Length(*width) });
    Table::new(rows.into_iter().map(aligned).collect::<Vec<_>>(), columns.collect::<Vec<_>>()).header(head)
}

/// The last part of an image's path.
fn short_name(image: &Image) -> &str {
    image.image.rsplit('/').next().unwrap_or_default()
}

fn image_table<'a>(view: &View) -> Table<'a> {
    let rows = view.sample.images.iter().map(|image| {
        let (calls, changes) = view.rates.of_image(image);
        let name = match image.points.as_slice() {
            [] => image.image.clone(),
            points => format!("{} ({})", points.join(" "), short_name(image)),
        };
        let used = format!("{}/{}", size::show(image.used), size::show(image.limit));
        let cached = format!("{}/{}", image.cached, image.cached_max);
        vec![
            name,
            used,
            image.files.to_string(),
            short(calls),
            short(changes),
            image.open_files.to_string(),
            cached,
            image.waiting.to_string(),
        ]
    });
    let titles = &["IMAGE", "USED", "FILES", "CALLS/s", "CHANGES/s", "OPEN", "CACHED", "WAIT"];
    table(titles, &[0, 19, 9, 7, 9, 6, 15, 4], rows.collect())
}

fn mount_table<'a>(sample: &Sample) -> Table<'a> {
    let known = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let rows = sample.mounts.iter().map(|mount| {
        vec![
            format!("{} {}", mount.point, mount.source),
            mount.state.to_string(),
            known(mount.programs.map(u64::from)),
            known(mount.nodes.map(u64::from)),
            known(mount.hits.or(mount.cache.map(|cache| cache.calls.saturating_sub(cache.fetches)))),
            known(mount.misses.or(mount.cache.map(|cache| cache.fetches))),
            mount.page_bytes.map(size::show).unwrap_or_default(),
            known(mount.requests),
            mount.cache.map(|cache| size::show(cache.dirty_bytes)).unwrap_or_default(),
            mount.cache.map(|cache| format!("{:.1}", cache.lag_ms as f64 / 1e3)).unwrap_or_default(),
        ]
    });
    let titles = &["MOUNT", "STATE", "USERS", "NAMES", "HITS", "MISSES", "PAGES", "REQUESTS", "DIRTY", "LAG s"];
    table(titles, &[0, 8, 6, 8, 10, 9, 10, 9, 10, 7], if sample.mounts.is_empty() { Vec::new() } else { rows.collect() })
}

fn process_table<'a>(view: &View) -> Table<'a> {
    let mut all: Vec<(&Image, &Process, (f64, f64))> = Vec::new();
    for image in &view.sample.images {
        all.extend(image.processes.iter().map(|process| (image, process, view.rates.of_process(image, process))));
    }
    all.sort_by(|(_, one, rates), (_, other, others)| {
        let by_pid = one.pid.cmp(&other.pid);
        match view.order {
            Order::Calls => others.0.total_cmp(&rates.0).then(others.1.total_cmp(&rates.1)).then(by_pid),
            Order::Changes => others.1.total_cmp(&rates.1).then(by_pid),
            Order::Fds => other.fds.cmp(&one.fds).then(by_pid),
            Order::Pid => by_pid,
        }
    });
    let rows = all.into_iter().map(|(image, process, (calls, changes))| {
        let name = short_name(image);
        vec![
            format!("{} ({name})", process.command),
            process.pid.to_string(),
            process.state.clone(),
            short(calls),
            short(changes),
            process.fds.to_string(),
            process.calls.to_string(),
            process.waits_for.join(","),
        ]
    });
    let titles = &["PROGRAM (IMAGE)", "PID", "S", "CALLS/s", "CHANGES/s", "FDS", "CALLS", "WAITS FOR"];
    table(titles, &[0, 8, 1, 7, 9, 6, 12, 11], rows.collect())
}
