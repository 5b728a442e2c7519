"""Whole programs drawn at random: variables that are read and assigned in any order, branches and
loops, tapes in and around them, functions of functions. As text, for TensorFlow and for the face.

    python generator.py 17    (prints a program; it fills ``OUT``)
"""

from __future__ import annotations

import random
import sys


class Generator:
    """One program by its seed; ``DEC`` is what decorates its functions."""

    def __init__(self, seed):
        self.random, self.count, self.lines, self.variables = random.Random(seed), 0, [], []

    def write(self, depth, text):
        self.lines.append("    " * depth + text)

    def fresh(self, word="t"):
        self.count += 1
        return f"{word}{self.count}"

    def value(self, scope, functions):
        pick = self.random.choice
        a, b = pick(scope), pick(scope + self.variables)
        kinds = [
            f"{a}+{b}", f"{a}-{b}*0.5", f"{a}*{b}*0.3", f"tf.sin({b})", f"tf.tanh({a})+{b}",
            f"tf.where({a}>{b},{a},{b}*0.1)", f"tf.stop_gradient({a})*{b}*0.2",
            f"tf.minimum({a},2.)*K[0]", f"({b} if FLAG else {a})+0.1", f"D['x']*{a}",
            f"tf.clip_by_value({b},-3.,3.)", *(f"{f}({a})" for f in functions)]  # fmt: skip
        return pick(kinds)

    def block(self, scope, functions, depth, size):
        scope = list(scope)
        for _ in range(size):
            kind = self.random.choice(KINDS)
            getattr(self, kind)(scope, functions, depth)
        return scope

    def set(self, scope, functions, depth):
        name = self.random.choice(scope[1:]) if depth > 1 and len(scope) > 1 else self.fresh()
        self.write(depth, f"{name} = {self.value(scope, functions)}")
        if name not in scope:
            scope.append(name)

    def assign(self, scope, functions, depth):
        name, value = self.random.choice(self.variables), self.value(scope, functions)
        way = self.random.choice(["assign", "assign_add", "assign_sub"])
        self.write(depth, f"{name}.{way}(tf.tanh({value}))")

    def branch(self, scope, functions, depth):
        if depth > 3:
            return self.set(scope, functions, depth)
        test = self.random.choice(self.variables + scope)
        self.write(depth, f"if {self.random.choice(scope)} > {test}:")
        self.block(scope, functions, depth + 1, 2)
        if self.random.random() < 0.6:
            self.write(depth, "else:")
            self.block(scope, functions, depth + 1, 2)

    def loop(self, scope, functions, depth):
        if depth > 2:
            return self.set(scope, functions, depth)
        i = self.fresh("i")
        self.write(depth, f"for {i} in tf.range({self.random.choice(['2', 'n', 'n+1'])}):")
        if self.random.random() < 0.3:
            way = self.random.choice(["break", "continue"])
            self.write(depth + 1, f"if tf.cast({i},tf.float32) > {scope[0]}*3.: {way}")
        self.block(scope, functions, depth + 1, 2)

    def tape(self, scope, functions, depth):
        if depth > 3:
            return self.set(scope, functions, depth)
        tape, out = self.fresh("tape"), self.fresh()
        self.write(
            depth, f"with tf.GradientTape(persistent={self.random.random() < 0.5}) as {tape}:"
        )
        self.block(scope, functions, depth + 1, 2)
        self.write(depth + 1, f"{out} = {self.value(scope, functions)}")
        sources = ",".join(self.variables)
        self.write(depth, f"{out} = tf.add_n([tf.clip_by_value(g,-4.,4.) for g in {tape}.gradient("
                          f"{out}, [{sources}], unconnected_gradients='zero')])")  # fmt: skip
        if depth == 1:
            scope.append(out)

    def array(self, scope, functions, depth):
        if depth > 1:
            return self.set(scope, functions, depth)
        a, i, out = self.fresh("a"), self.fresh("i"), self.fresh()
        self.write(depth, f"{a} = tf.TensorArray(tf.float32, n, element_shape=[])")
        self.write(depth, f"for {i} in tf.range(n): {a} = {a}.write({i}, "
                          f"{self.value(scope, functions)}+tf.cast({i}, tf.float32))")  # fmt: skip
        self.write(depth, f"{out} = tf.reduce_sum({a}.stack())")
        scope.append(out)

    def cond(self, scope, functions, depth):
        name, test = self.fresh(), self.random.choice(scope)
        one, other = self.value(scope, functions), self.value(scope, functions)
        self.write(depth, f"{name} = tf.cond({test}>0.,lambda: {one},lambda: {other})")
        if depth == 1:
            scope.append(name)

    def function(self, name, functions, size):
        self.write(0, "@DEC")
        self.write(0, f"def {name}(x, n=tf.constant(2)):")
        scope = self.block(["x"], functions, 1, size)
        outs = ",".join(f"tf.clip_by_value({t},-9.,9.)" for t in scope[-2:])
        self.write(1, f"return [{outs}]" if name == "f" else f"return tf.tanh({scope[-1]})")

    def program(self):
        for i in range(self.random.randint(1, 3)):
            self.variables.append(f"v{i}")
            self.write(0, f"v{i} = tf.Variable({round(self.random.uniform(-2, 2), 2)})")
        self.write(0, "K, FLAG, D, OUT = [1.5], True, {'x': tf.constant(0.7)}, []")
        functions = [f"h{i}" for i in range(self.random.randint(0, 2))]
        for i, name in enumerate(functions):
            self.function(name, functions[:i], 2)
        self.function("f", functions, 4)
        names = ",".join(self.variables)
        for x, n in ((0.6, 2), (-1.1, 0), (1.7, 3)):
            self.write(0, f"x = tf.constant({x})")
            self.write(0, "with tf.GradientTape() as t:")
            self.write(1, f"t.watch(x); y = f(x, tf.constant({n})); total = tf.add_n(y)")
            self.write(
                0, f"OUT += [y, t.gradient(total, [x,{names}], unconnected_gradients='zero')]"
            )
            self.write(0, f"OUT += [f(x, tf.constant({n})), [{names}]]")
        return "\n".join(self.lines) + "\n"


KINDS = ["set", "set", "assign", "branch", "loop", "tape", "array", "cond"]


def program(seed):
    """The text of a program."""
    return Generator(seed).program()


if __name__ == "__main__":
    print(program(int(sys.argv[1])))
