"""Code in each language that has a grammar, and what an outline of it says."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    text: str
    defines: dict[str, str]
    calls: set[tuple[str, str | None]]
    imports: list[str]
    extends: list[tuple[str, str | None]]


PYTHON = Sample(
    """\
from shop.cart import Cart, Item as Thing
import numpy as np
import os.path

TAX = 0.2
lower_case = 1

class Basket(Cart, models.Model, Generic[T], metaclass=Meta):
    @cached
    def total(self):
        x = np.array([1])
        return self.tax(x) + compute(Thing()) + os.path.join("a") + other.thing()

    async def tax(self, x):
        def inner():
            return helper()
        return inner()

@app.route("/")
def main():
    b = Basket()
    b.total()
    print(Cart.make(b))
""",
    {
        "TAX": "variable",
        "Basket": "class",
        "Basket.total": "method",
        "Basket.tax": "method",
        "inner": "function",
        "main": "function",
    },
    {
        ("cached", "Basket"),
        ("numpy.array", "Basket.total"),
        ("Basket.tax", "Basket.total"),
        ("compute", "Basket.total"),
        ("Item", "Basket.total"),
        ("os.path.join", "Basket.total"),
        ("thing", "Basket.total"),
        ("helper", "inner"),
        ("inner", "Basket.tax"),
        ("route", None),
        ("Basket", "main"),
        ("total", "main"),
        ("Cart.make", "main"),
    },
    ["shop.cart", "Cart", "Item", "numpy", "os.path"],
    [("Cart", "Basket"), ("models.Model", "Basket"), ("Generic", "Basket")],
)

JAVASCRIPT = Sample(
    """\
import React, { useState as use } from 'react';
import * as api from "./api";
const { x } = require('./lib');
const lazy = () => import('./late');
export const router = express.Router();
const LIMIT = 5;
class Cart extends Base {
  total(items) { return this.sum(items) + helper(items); }
  handle = () => { this.total(); };
}
const add = (a) => api.post(a);
function* steps() { yield next2(); }
export default function App() {
  const [a] = use(0);
  return <Panel onClick={add}><div><Item /></div></Panel>;
}
module.exports.go = function () { new Cart(); console.log(1); };
const table = { run: () => start() };
""",
    {
        "lazy": "function",
        "router": "variable",
        "LIMIT": "variable",
        "Cart": "class",
        "Cart.total": "method",
        "Cart.handle": "method",
        "add": "function",
        "steps": "function",
        "App": "function",
        "go": "function",
        "run": "function",
    },
    {
        ("Router", None),
        ("Cart.sum", "Cart.total"),
        ("helper", "Cart.total"),
        ("Cart.total", "Cart.handle"),
        ("api.post", "add"),
        ("next2", "steps"),
        ("useState", "App"),
        ("Panel", "App"),
        ("Item", "App"),
        ("Cart", "go"),
        ("start", "run"),
    },
    ["React", "useState", "react", "api", "./api", "./lib", "./late"],
    [("Base", "Cart")],
)

TYPESCRIPT = Sample(
    """\
import type { A } from './a';
export { B } from './b';
interface Shape extends Base { area(): number }
type Id = string;
enum Color { Red }
export abstract class Square<T> extends Poly<T> implements Shape {
  constructor(private readonly n: number) { super(); }
  area(): number { return this.side() * 2; }
  abstract side(): number;
}
namespace Inner { export function f(): void { g(); } }
export const make = async (x: Id): Promise<Id> => wrap<Id>(x);
function first(x: unknown): x is Id;
""",
    {
        "Shape": "interface",
        "Shape.area": "method",
        "Id": "type",
        "Color": "type",
        "Square": "class",
        "Square.constructor": "method",
        "Square.area": "method",
        "Square.side": "method",
        "Inner": "module",
        "f": "function",
        "make": "function",
        "first": "function",
    },
    {("Square.side", "Square.area"), ("g", "f"), ("wrap", "make")},
    ["A", "./a", "./b"],
    [("Base", "Shape"), ("Poly", "Square"), ("Shape", "Square")],
)

GO = Sample(
    """\
package main

import (
	"fmt"
	c "github.com/shop/cart"
)

const LIMIT = 5

type Cart struct {
	Base
	items []Item
}
type Shape interface{ Area() float64 }
type ID string

func (k *Cart) Total() int { return k.sum(c.New(), helper()) }

func main() {
	fmt.Println(1)
	cart := Cart{}
	cart.Total()
	go func() { work() }()
}
""",
    {
        "LIMIT": "variable",
        "Cart": "class",
        "Shape": "interface",
        "ID": "type",
        "Cart.Total": "method",
        "main": "function",
    },
    {
        ("Cart.sum", "Cart.Total"),
        ("cart.New", "Cart.Total"),
        ("helper", "Cart.Total"),
        ("Cart", "main"),
        ("Total", "main"),
        ("work", "main"),
    },
    ["fmt", "github.com/shop/cart"],
    [("Base", "Cart")],
)

RUST = Sample(
    """\
use crate::shop::{self, Cart, item::{Item as It, *}};
pub struct Basket { a: i32 }
trait Total: Debug { fn total(&self) -> i32; }
impl Total for Basket {
    fn total(&self) -> i32 { self.sum() + Self::base() + helper(1) }
}
impl<T> Store<T> {
    fn open() -> Self { It::make(); my_macro!(x); Basket { a: 1 } }
}
enum Kind { A }
type Id = u32;
const MAX: i32 = 1;
mod inner { fn f() { super::g::<i32>() } }
macro_rules! twice { ($x:expr) => { $x } }
""",
    {
        "Basket": "class",
        "Total": "interface",
        "Total.total": "method",
        "Basket.total": "method",
        "Store.open": "method",
        "Kind": "class",
        "Id": "type",
        "MAX": "variable",
        "inner": "module",
        "f": "function",
        "twice": "function",
    },
    {
        ("Basket.sum", "Basket.total"),
        ("Basket.base", "Basket.total"),
        ("helper", "Basket.total"),
        ("Item.make", "Store.open"),
        ("my_macro", "Store.open"),
        ("Basket", "Store.open"),
        ("g", "f"),
    },
    ["crate.shop", "crate.shop.Cart", "crate.shop.item.Item", "crate.shop.item"],
    [("Debug", "Total"), ("Total", "Basket")],
)

JAVA = Sample(
    """\
package shop;
import java.util.List;
import static shop.Tools.twice;
public class Cart extends Base<Item> implements Shape, Priced {
  private static final int MAX = 1;
  public Cart() { super(); init(); }
  @Transactional
  public int total() { return this.sum() + helper.run(1) + init() + Util.max(2); }
  void init() { new Item<String>(); }
}
interface Shape extends Area, Round { int area(); }
enum Color { RED }
record Point(int x) {}
""",
    {
        "Cart": "class",
        "MAX": "variable",
        "Cart.Cart": "method",
        "Cart.total": "method",
        "Cart.init": "method",
        "Shape": "interface",
        "Shape.area": "method",
        "Color": "class",
        "Point": "class",
    },
    {
        ("Cart.init", "Cart.Cart"),
        ("Transactional", "Cart.total"),
        ("Cart.sum", "Cart.total"),
        ("run", "Cart.total"),
        ("Cart.init", "Cart.total"),
        ("Util.max", "Cart.total"),
        ("Item", "Cart.init"),
    },
    ["java.util.List", "shop.Tools.twice"],
    [("Base", "Cart"), ("Shape", "Cart"), ("Priced", "Cart"), ("Area", "Shape"), ("Round", "Shape")],
)

CPP = Sample(
    """\
#include <vector>
#include "cart.h"
using std::string;
#define MAX 1
namespace shop {
class Cart : public Base, private other::Thing {
 public:
  int total() const;
  void add(Item i) { total(); this->sum(); }
};
}
int Cart::total() const { return helper(1) + util::most(2) + item->price(); }
struct Point { int x; };
typedef struct { int y; } Pair;
enum class Color { Red };
template <typename T> T* make(int a) { return new Widget<T>(a); }
char *name(void);
int main() { auto x = convert<int>(1); return 0; }
""",
    {
        "MAX": "variable",
        "shop": "module",
        "Cart": "class",
        "Cart.total": "method",
        "Cart.add": "method",
        "Point": "class",
        "Pair": "type",
        "Color": "type",
        "make": "function",
        "name": "function",
        "main": "function",
    },
    {
        ("Cart.total", "Cart.add"),
        ("Cart.sum", "Cart.add"),
        ("helper", "Cart.total"),
        ("most", "Cart.total"),
        ("price", "Cart.total"),
        ("Widget", "make"),
        ("convert", "main"),
    },
    ["vector", "cart.h", "std.string"],
    [("Base", "Cart"), ("other.Thing", "Cart")],
)

C = Sample(
    """\
#include <stdio.h>
#define TWICE(x) ((x) * 2)
struct cart { int n; };
typedef unsigned long id_t2;
static int total(struct cart *c) { return sum(c->items) + c->price(1); }
char *name(void);
int main(void) { printf("%d", total(0)); return 0; }
""",
    {
        "TWICE": "function",
        "cart": "class",
        "id_t2": "type",
        "total": "function",
        "name": "function",
        "main": "function",
    },
    {("sum", "total"), ("price", "total"), ("total", "main")},
    ["stdio.h"],
    [],
)

C_SHARP = Sample(
    """\
using System.Linq;
using Shop.Parts;
namespace Shop.Core;
public class Cart : Base<Item>, IShape
{
    public Cart(int x) { Init(); }
    [HttpGet("x")]
    public async Task<int> Total()
    {
        var q = new Item();
        return await this.Sum() + _service?.Run() + _service.Go<int>() + Helper.Max(1);
    }
    void Init() { void Local() { Deep(); } }
}
public interface IShape { int Area(); }
public enum Color { Red }
public record Point(int X);
public delegate void Changed();
""",
    {
        "Shop.Core": "module",
        "Cart": "class",
        "Cart.Cart": "method",
        "Cart.Total": "method",
        "Cart.Init": "method",
        "Local": "function",
        "IShape": "interface",
        "IShape.Area": "method",
        "Color": "type",
        "Point": "class",
        "Changed": "type",
    },
    {
        ("Cart.Init", "Cart.Cart"),
        ("HttpGet", "Cart.Total"),
        ("Item", "Cart.Total"),
        ("Cart.Sum", "Cart.Total"),
        ("Run", "Cart.Total"),
        ("Go", "Cart.Total"),
        ("Helper.Max", "Cart.Total"),
        ("Deep", "Local"),
    },
    ["System.Linq", "Shop.Parts"],
    [("Base", "Cart"), ("IShape", "Cart")],
)

SAMPLES = {
    "python": PYTHON,
    "javascript": JAVASCRIPT,
    "typescript": TYPESCRIPT,
    "go": GO,
    "rust": RUST,
    "java": JAVA,
    "cpp": CPP,
    "c": C,
    "csharp": C_SHARP,
}
