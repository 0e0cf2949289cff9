"""What each phase decides: functions over arrays. No I/O, no clock."""
