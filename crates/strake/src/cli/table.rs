//! Tables and pairs for people: no frames, two spaces between columns, numbers to the right.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A table without rows prints as this sentence instead.
pub fn table(header: &[&str], rows: Vec<Vec<String>>, right: &[usize], empty: &str) -> String {
    if rows.is_empty() {
        return format!("{empty}\n");
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    // As wide as it needs to be, also in a pipe: a cut path is of no use.
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n") + "\n"
}

/// Names and values in two columns.
pub fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    pairs
        .iter()
        .map(|(name, value)| format!("{name:width$}  {value}").trim_end().to_owned() + "\n")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_without_blanks() {
        let rows = vec![
            vec!["a".into(), "1".into(), "x".into()],
            vec!["longer".into(), "100".into(), String::new()],
        ];
        let text = table(&["NAME", "N", "NOTE"], rows, &[1], "none");
        assert_eq!(text, "NAME      N  NOTE\na         1  x\nlonger  100\n");
    }

    #[test]
    fn nothing_is_said_in_words() {
        assert_eq!(
            table(&["NAME"], Vec::new(), &[], "no arrays"),
            "no arrays\n"
        );
    }

    #[test]
    fn pairs_line_up() {
        let text = pairs(&[("a", "1".into()), ("long", String::new())]);
        assert_eq!(text, "a     1\nlong\n");
    }
}
