"""When a server may be asked: delays, groups, quotas; what a harvest teaches of them; and the audit that computes it all anew."""
