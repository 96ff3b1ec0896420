"""The leader's step, ours beside Java's and franz-go's."""
