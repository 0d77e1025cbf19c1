"""Lets ``python -m slackswap_ilp`` do what the command ``slackswap`` does."""

from slackswap_ilp.cli import main

if __name__ == "__main__":
    main()
