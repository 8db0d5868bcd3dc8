//! Sizes as people write and read them.

/// Parses `512M`, `1G`, `2T`, `65536`, also `1GiB` and `1GB` (all powers of
/// 1024). The error says what would be accepted.
pub fn parse(text: &str) -> Result<u64, String> {
    let help = || format!("'{text}' is not a size: write a whole number and K, M, G or T, such as 512M or 2G");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().map_err(|_| help())?;
    let shift = match text[digits..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(help()),
    };
    number.checked_mul(1 << shift).ok_or_else(help)
}

/// Parses the size of an image: within the limits of the format.
pub fn parse_image(text: &str) -> Result<u64, String> {
    let bytes = parse(text)?;
    if !(format::layout::SIZE_MIN..=format::layout::SIZE_MAX).contains(&bytes) {
        let (low, high) = (show(format::layout::SIZE_MIN), show(format::layout::SIZE_MAX));
        return Err(format!("{} cannot be the size of an image: it must be between {low} and {high}", show(bytes)));
    }
    Ok(bytes)
}

/// A size for people: `1.5 GiB`; exact below 1 KiB.
pub fn show(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() == 0.0 { format!("{value:.0} {}", UNITS[unit]) } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A size in four letters at most, rounded up, as `ls -h` has it: `1.5K`, `20M`.
pub fn short(bytes: u64) -> String {
    const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];
    let (mut unit, mut tenths) = (None, u128::from(bytes) * 10);
    for next in UNITS {
        if tenths.div_ceil(10) < 1024 {
            break;
        }
        (unit, tenths) = (Some(next), tenths.div_ceil(1024));
    }
    match unit {
        None => bytes.to_string(),
        Some(unit) if tenths < 100 => format!("{}.{}{unit}", tenths / 10, tenths % 10),
        Some(unit) => format!("{}{unit}", tenths.div_ceil(10)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what people write is understood, nonsense is refused, no number overflows.
    #[test]
    fn parsing() {
        assert_eq!(parse("512M"), Ok(512 << 20));
        assert_eq!(parse("1g"), Ok(1 << 30));
        assert_eq!(parse("2TiB"), Ok(2 << 40));
        assert_eq!(parse("65536"), Ok(65536));
        for nonsense in ["", "G", "-1", "1.5G", "1 G", "12Q", "0x10", "99999999999999999999", "18446744073709551615K", "1GG", "é"]
        {
            assert!(parse(nonsense).is_err(), "{nonsense}");
        }
        for refused in ["0", "1M", "17T", "16777215"] {
            assert!(parse_image(refused).is_err(), "{refused}");
        }
        assert_eq!(parse_image("16M"), Ok(16 << 20));
    }

    /// Goal: sizes as `ls -h` of GNU coreutils shows them.
    #[test]
    fn short_ones() {
        let pairs = [(0, "0"), (1023, "1023"), (1024, "1.0K"), (1025, "1.1K"), (10239, "10K"), (10 << 10, "10K"), (10241, "11K")];
        for (bytes, text) in
            pairs.into_iter().chain([(1 << 20, "1.0M"), (3 << 29, "1.5G"), (1023 << 10, "1023K"), ((1023 << 10) + 1, "1.0M")])
        {
            assert_eq!(short(bytes), text, "{bytes}");
        }
    }

    /// Goal: the units change where they should.
    #[test]
    fn showing() {
        assert_eq!(show(0), "0 B");
        assert_eq!(show(1023), "1023 B");
        assert_eq!(show(1 << 30), "1 GiB");
        assert_eq!(show(3 << 29), "1.5 GiB");
        assert_eq!(show((1 << 20) - 1), "1.0 MiB");
    }
}
