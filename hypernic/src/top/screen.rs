//! The screen, and the keys.

use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell as Shown, Paragraph, Row, Table as Grid, Tabs};

use super::look::Look;
use super::rates::View;
use super::table::{Cell, TABS, Table, at_right};
use crate::error::Error;

/// Shows until the user has enough, or so many looks were made.
pub(super) fn run(mut look: Look, delay: Duration, looks: Option<u64>) -> Result<(), Error> {
    let os = |source| Error::Os {
        what: "cannot use the terminal; hypernic top --batch needs none",
        source,
    };
    let mut before = look.look()?;
    let mut terminal = ratatui::try_init().map_err(os)?;
    let mut screen = Screen::default();
    let mut left = looks;
    let mut next = Instant::now() + delay;
    let result = loop {
        if let Err(error) = terminal.draw(|frame| screen.draw(frame)) {
            break Err(os(error));
        }
        match event::poll(next.saturating_duration_since(Instant::now())) {
            Ok(true) => match event::read() {
                Ok(Event::Key(key)) if screen.key(key) == Next::End => break Ok(()),
                Ok(_) => {}
                Err(error) => break Err(os(error)),
            },
            Ok(false) => {
                next = (next + delay).max(Instant::now());
                if screen.paused {
                    continue;
                }
                if left == Some(0) {
                    break Ok(());
                }
                left = left.map(|left| left - 1);
                match look.look() {
                    Ok(now) => {
                        screen.view = Some(View::between(&before, &now));
                        before = now;
                    }
                    Err(error) => break Err(error),
                }
            }
            Err(error) => break Err(os(error)),
        }
    };
    ratatui::restore();
    result
}

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Go,
    End,
}

/// What is on it.
#[derive(Default)]
struct Screen {
    view: Option<View>,
    tab: usize,
    /// The column that each tab is sorted by, if the user chose one.
    sorted: [Option<usize>; TABS.len()],
    first: usize,
    paused: bool,
}

impl Screen {
    fn key(&mut self, key: KeyEvent) -> Next {
        if key.kind == KeyEventKind::Release {
            return Next::Go;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Next::End,
            KeyCode::Char('c') if control => return Next::End,
            KeyCode::Char(digit @ '1'..='5') => self.turn_to(digit as usize - '1' as usize),
            KeyCode::Tab | KeyCode::Right => self.turn_to((self.tab + 1) % TABS.len()),
            KeyCode::BackTab | KeyCode::Left => {
                self.turn_to((self.tab + TABS.len() - 1) % TABS.len());
            }
            KeyCode::Down => self.first += 1,
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::PageDown => self.first += 20,
            KeyCode::PageUp => self.first = self.first.saturating_sub(20),
            KeyCode::Home => self.first = 0,
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('s') => self.sort_by_next(),
            _ => {}
        }
        Next::Go
    }

    fn turn_to(&mut self, tab: usize) {
        self.tab = tab;
        self.first = 0;
    }

    fn sort_by_next(&mut self) {
        let nothing = View::default();
        let view = self.view.as_ref().unwrap_or(&nothing);
        let columns = Table::of(view, TABS[self.tab]).columns.len();
        let sorted = &mut self.sorted[self.tab];
        *sorted = match *sorted {
            None => Some(0),
            Some(at) if at + 1 < columns => Some(at + 1),
            Some(_) => None,
        };
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let rows = [
            Constraint::Length(1),
            Constraint::Min(2),
            Constraint::Length(1),
        ];
        let [head, body, foot] = Layout::vertical(rows).areas(frame.area());
        let titles = TABS.iter().enumerate();
        let titles = titles.map(|(at, tab)| format!("{} {}", at + 1, tab.title()));
        frame.render_widget(Tabs::new(titles).select(self.tab), head);
        match &self.view {
            Some(view) => {
                let mut table = Table::of(view, TABS[self.tab]);
                if let Some(column) = self.sorted[self.tab] {
                    table.sort(column);
                }
                let last = table.rows.len().saturating_sub(1);
                self.first = self.first.min(last);
                frame.render_widget(grid(&table, self.sorted[self.tab], self.first), body);
            }
            None => frame.render_widget(Paragraph::new("looking …"), body),
        }
        let paused = if self.paused { "PAUSED  " } else { "" };
        let keys =
            format!("{paused}1-5, Tab: what  s: sort  Up, Down: scroll  Space: pause  q: end");
        frame.render_widget(Paragraph::new(keys), foot);
    }
}

/// The table from a row on.
fn grid(table: &Table, sorted: Option<usize>, first: usize) -> Grid<'static> {
    let right = |column: usize| match table.rows.first() {
        Some(row) => row.get(column).is_some_and(at_right),
        None => column >= table.numbers,
    };
    let cell = |text: &str, right: bool| {
        let alignment = if right {
            Alignment::Right
        } else {
            Alignment::Left
        };
        Shown::from(Text::from(Line::from(text.to_owned()).alignment(alignment)))
    };
    let head = table.columns.iter().enumerate().map(|(column, name)| {
        let style = match sorted == Some(column) {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new().add_modifier(Modifier::BOLD),
        };
        cell(name, right(column)).style(style)
    });
    let shown = |row: &Vec<Cell>| {
        Row::new(
            row.iter()
                .map(|c| cell(c.shown(), at_right(c)))
                .collect::<Vec<_>>(),
        )
    };
    let width = |column: usize| {
        let widest = table
            .rows
            .iter()
            .map(|row| row[column].shown().chars().count());
        let width = widest.max().unwrap_or(0).max(table.columns[column].len());
        // Long words at the end have what is left.
        match column + 1 == table.columns.len() && !right(column) {
            true => Constraint::Fill(1),
            false => Constraint::Length(width.min(100) as u16),
        }
    };
    let widths: Vec<_> = (0..table.columns.len()).map(width).collect();
    let rows: Vec<_> = table.rows.iter().skip(first).map(shown).collect();
    Grid::new(rows, widths)
        .header(Row::new(head.collect::<Vec<_>>()))
        .column_spacing(2)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::rates::tests::two_seconds;
    use super::*;

    fn press(screen: &mut Screen, code: KeyCode) -> Next {
        screen.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn lines(screen: &mut Screen) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(90, 6)).expect("a terminal");
        terminal.draw(|frame| screen.draw(frame)).expect("drawn");
        let buffer = terminal.backend().buffer().clone();
        let line = |y: u16| {
            (0..90)
                .map(|x| buffer[(x, y)].symbol().to_owned())
                .collect::<String>()
        };
        (0..6).map(|y| line(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn each_tab_shows_its_table() {
        let mut screen = Screen::default();
        assert_eq!(lines(&mut screen)[1], "looking …");
        screen.view = Some(two_seconds());
        assert_eq!(
            lines(&mut screen),
            [
                " 1 NICs │ 2 workers │ 3 switches │ 4 drops │ 5 VFs",
                "NIC  model  state  rx/s  rx bit/s  tx/s  tx bit/s  drop/s  access/s  irq/s   work",
                "n0   e1000  up     1.0k      480k    10      120k     7.0       4.0    5.0  10.0%",
                "",
                "",
                "1-5, Tab: what  s: sort  Up, Down: scroll  Space: pause  q: end",
            ]
        );
        press(&mut screen, KeyCode::Char('4'));
        let drops = lines(&mut screen);
        assert!(
            drops[2].starts_with("nic          n0      rx_missed     drop"),
            "{}",
            drops[2]
        );
        press(&mut screen, KeyCode::Down);
        assert!(lines(&mut screen)[2].starts_with("switch-port"));
        // No further than the last.
        press(&mut screen, KeyCode::PageDown);
        assert!(lines(&mut screen)[2].starts_with("switch-port"));
        press(&mut screen, KeyCode::BackTab);
        assert!(lines(&mut screen)[2].starts_with("lan/n0"));
    }

    #[test]
    fn keys_do_what_the_last_line_says() {
        let mut screen = Screen::default();
        for _ in 0..3 {
            assert_eq!(press(&mut screen, KeyCode::Char('s')), Next::Go);
        }
        assert_eq!(screen.sorted[0], Some(2));
        for _ in 0..9 {
            press(&mut screen, KeyCode::Char('s'));
        }
        assert_eq!(screen.sorted[0], None);
        press(&mut screen, KeyCode::Char(' '));
        assert!(lines(&mut screen)[5].starts_with("PAUSED"));
        assert_eq!(press(&mut screen, KeyCode::Char('q')), Next::End);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(screen.key(interrupt), Next::End);
        press(&mut screen, KeyCode::Left);
        assert_eq!(screen.tab, 4);
    }
}
