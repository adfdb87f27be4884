"""`python -m benchmarks` is `./run bench`, in an environment that has everything already."""

from benchmarks.command import app

if __name__ == "__main__":
    app(prog_name="./run bench")
