//! Tables for people: the one place where columns are aligned.

/// Rows with their cells, padded to common widths; what is in a cell is one line and drives no terminal. `least` are widths
/// that the first columns have in any case.
pub fn render(rows: &[Vec<String>], least: &[usize]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| flat(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let widest = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
            widest.unwrap_or(0).max(least.get(column).copied().unwrap_or(0))
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}", width = *width));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn flat(cell: &str) -> String {
    cell.chars().map(|one| if one.is_control() { ' ' } else { one }).collect()
}

/// A number of bytes in the largest unit that keeps a digit before the point: `512B`, `1.4Gi`.
pub fn bytes(count: u64) -> String {
    const UNITS: [(&str, u32); 6] = [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    let tenths = |shift: u32| (u128::from(count) * 10) >> shift;
    let found = UNITS.iter().find(|(_, shift)| count >> shift > 0);
    match found {
        None => format!("{count}B"),
        Some((unit, shift)) => format!("{}.{}{unit}", tenths(*shift) / 10, tenths(*shift) % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_whatever_is_in_them() {
        let rows = [vec!["NAME", "STATE"], vec!["grüße", ""], vec!["", "a\nb\u{1b}[2J", "more"]];
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|one| (*one).to_owned()).collect()).collect();
        assert_eq!(render(&rows, &[]), "NAME   STATE\ngrüße\n       a b [2J  more\n");
        assert_eq!(render(&[vec!["ok".into(), "x".into()]], &[5]), "ok     x\n");
        assert_eq!(render(&[], &[3]), "");
    }

    #[test]
    fn sizes_are_read_at_a_glance() {
        let table = [(0, "0B"), (1023, "1023B"), (1024, "1.0Ki"), (1_503_238_553, "1.3Gi"), (u64::MAX, "15.9Ei")];
        for (count, expected) in table {
            assert_eq!(bytes(count), expected);
        }
    }
}
