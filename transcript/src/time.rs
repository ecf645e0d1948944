//! ISO 8601 dates as milliseconds since the Unix epoch.
//!
//! Decision: written out here, because transcripts use one narrow form of the standard and a date library would be the
//! crate's largest dependency.

/// `2026-01-05T08:00:00.000Z`, with or without fraction, with `Z`, an offset or nothing (read as UTC).
pub(crate) fn parse_iso_ms(text: &str) -> Option<i64> {
    let b = text.as_bytes();
    let digits = |range: std::ops::Range<usize>| -> Option<i64> {
        let part = b.get(range)?;
        part.iter().try_fold(0_i64, |n, c| c.is_ascii_digit().then(|| n * 10 + i64::from(c - b'0')))
    };
    let separator = |at: usize, allowed: &[u8]| b.get(at).is_some_and(|c| allowed.contains(c)).then_some(());
    let (year, month, day) = (digits(0..4)?, digits(5..7)?, digits(8..10)?);
    separator(4, b"-")?;
    separator(7, b"-")?;
    separator(10, b"T ")?;
    let (hour, minute, second) = (digits(11..13)?, digits(14..16)?, digits(17..19)?);
    separator(13, b":")?;
    separator(16, b":")?;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 24 || minute > 59 || second > 60 {
        return None;
    }
    let mut at = 19;
    let mut millis = 0;
    if b.get(at) == Some(&b'.') {
        at += 1;
        let mut scale = 100;
        while let Some(c) = b.get(at).filter(|c| c.is_ascii_digit()) {
            millis += i64::from(c - b'0') * scale;
            scale /= 10;
            at += 1;
        }
    }
    let offset_minutes = match b.get(at) {
        Some(sign @ (b'+' | b'-')) => {
            let hours = digits(at + 1..at + 3)?;
            let minutes = digits(at + 4..at + 6).or_else(|| digits(at + 3..at + 5)).unwrap_or(0);
            (hours * 60 + minutes) * if *sign == b'-' { -1 } else { 1 }
        }
        Some(b'Z' | b'z') | None => 0,
        Some(_) => return None,
    };
    let minutes = days_since_epoch(year, month, day) * 1440 + hour * 60 + minute - offset_minutes;
    Some((minutes * 60 + second) * 1000 + millis)
}

/// Days from 1970-01-01 in the Gregorian calendar, by Howard Hinnant's `days_from_civil`.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// `2026-01-05T08:00:00.000Z`; `None` outside the years 0 to 9999.
pub(crate) fn format_iso(ms: i64) -> Option<String> {
    let (days, of_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    let (year, month, day) = date(days);
    if !(0..=9999).contains(&year) {
        return None;
    }
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1_000 % 60, of_day % 1_000);
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z"))
}

/// The date of a day, the inverse of [`days_since_epoch`] (Hinnant's `civil_from_days`).
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::{format_iso, parse_iso_ms};

    #[test]
    fn a_date_that_is_written_is_read_again() {
        assert_eq!(format_iso(1_767_600_000_123).as_deref(), Some("2026-01-05T08:00:00.123Z"));
        for ms in [0, -1, 951_782_399_999, 951_782_400_000, 4_102_444_800_000, -62_135_596_800_000] {
            assert_eq!(format_iso(ms).and_then(|text| parse_iso_ms(&text)), Some(ms));
        }
        assert_eq!(format_iso(i64::MAX), None);
    }

    #[test]
    fn dates_of_transcripts() {
        assert_eq!(parse_iso_ms("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse_iso_ms("2026-01-05T08:00:00.000Z"), Some(1_767_600_000_000));
        assert_eq!(parse_iso_ms("2026-01-05T09:00:00.123456+01:00"), Some(1_767_600_000_123));
        assert_eq!(parse_iso_ms("2026-01-05 08:00:00"), Some(1_767_600_000_000));
        for no_date in ["", "now", "2026-13-05T08:00:00Z", "2026-01-05", "2026-01-05T08:00:00é"] {
            assert_eq!(parse_iso_ms(no_date), None, "{no_date}");
        }
    }
}
