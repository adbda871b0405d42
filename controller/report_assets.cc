#include "controller/report_assets.h"

namespace spate::controller::report {

// Colors: Okabe and Ito's set, told apart with any color vision; lighter on dark.
const std::string_view kStyle = R"css(
:root{color-scheme:light dark;--page:#fafaf8;--card:#fff;--ink:#1c1f22;--quiet:#646b72;--rule:#e3e3de;
--band:#00000008;--off:#0000000f;--hatch:#00000026;--c1:#0072b2;--c2:#d55e00;--c3:#009e73;--c4:#c98a00;--c5:#56b4e9;--c6:#8a8f94;
--good:#00795a;--warn:#8f6200;--bad:#b34700;--goodbg:#e0f3ec;--warnbg:#fbf0d3;--badbg:#fbe6d9;--gutter:60px}
@media (prefers-color-scheme:dark){:root{--page:#131518;--card:#1a1d21;--ink:#e6e8ea;--quiet:#99a1a8;--rule:#2d3237;
--band:#ffffff07;--off:#ffffff0f;--hatch:#ffffff2b;--c1:#4aa8e0;--c2:#f08a4b;--c3:#3cc79a;--c4:#e6b035;--c5:#9ad4f5;--c6:#8a9199;
--good:#5fd3ad;--warn:#e8bd55;--bad:#ff9a62;--goodbg:#12342a;--warnbg:#372c10;--badbg:#3d2213}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 24px 64px}
h1{font-size:26px;line-height:1.2;margin:0;font-weight:650;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:17px;margin:40px 0 10px;font-weight:650}
small,.quiet{color:var(--quiet);font-size:13px;font-weight:400}
code,pre,.mono{font:13px/1.5 ui-monospace,"SF Mono","Cascadia Mono","DejaVu Sans Mono",monospace}
header .brand{color:var(--quiet);font-size:13px;letter-spacing:.08em;text-transform:uppercase}
header .mono{color:var(--quiet);overflow-wrap:anywhere}
.verdict{margin:18px 0 0;padding:12px 16px;border-radius:8px;border-left:4px solid}
.verdict b{font-size:17px;letter-spacing:.03em}.verdict ul{margin:6px 0 0;padding-left:20px}.verdict li{overflow-wrap:anywhere}
.valid{background:var(--goodbg);border-color:var(--good)}.valid b{color:var(--good)}
.suspect{background:var(--warnbg);border-color:var(--warn)}.suspect b{color:var(--warn)}
.invalid{background:var(--badbg);border-color:var(--bad)}.invalid b{color:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(118px,1fr));gap:10px;margin:18px 0 0}
.tile{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:10px 12px;min-width:0}
.tile span{display:block;color:var(--quiet);font-size:12.5px}
.tile b{display:block;font-size:21px;line-height:1.3;font-weight:600;font-variant-numeric:tabular-nums;white-space:nowrap}
.tile small{display:block;font-size:12px;line-height:1.35}
.card{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:12px 16px 10px}
.stack{position:relative}
.strip{position:relative;height:22px;margin-left:var(--gutter);font-size:12px;color:var(--quiet);overflow:hidden}
.strip span{position:absolute;top:1px;bottom:0;padding:0 5px;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;border-left:1px solid var(--rule)}
.behind,.before{position:absolute;left:var(--gutter);right:0;top:0;bottom:22px;pointer-events:none}
.behind div,.before div{position:absolute;top:0;bottom:0}
.behind,.behind div{print-color-adjust:exact;-webkit-print-color-adjust:exact}
.guard{background:var(--c4);opacity:.22}.band{background:var(--band)}.off{background:var(--off)}
.edge{border-left:1px solid var(--rule)}.epoch{border-left:1px solid var(--c6)}
.warning{border-left:1px dashed var(--warn)}.error{border-left:1px dashed var(--bad)}
.gap{background:repeating-linear-gradient(135deg,var(--hatch) 0 2px,transparent 2px 7px)}
.sample{display:inline-block;width:22px;height:11px;vertical-align:-1px;margin-right:5px}
.notes span{margin-right:18px;display:inline-block}
.sample.line{height:0;vertical-align:4px;border-left:0}
.sample.warning{border-top:1px dashed var(--warn)}.sample.error{border-top:1px dashed var(--bad)}.sample.epoch{border-top:1px solid var(--c6)}
.chart{position:relative;margin:0 0 14px}
.chart figcaption{display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 16px;padding:2px 0 5px var(--gutter);font-size:13px}
.chart .name{font-weight:600}.chart .name small{margin-left:3px}
.key{margin-left:14px;color:var(--quiet);white-space:nowrap}.key:first-child{margin-left:0}
.key i{display:inline-block;width:14px;height:0;border-top:2.5px solid;margin-right:5px;vertical-align:4px}
.key i.dash{border-top-style:dashed}.key i.thin{border-top-width:1.5px}
.key b{color:var(--ink);font-weight:600;font-variant-numeric:tabular-nums;margin-left:5px}
.key b:empty{display:none}
.plot{position:relative;margin-left:var(--gutter)}
.plot svg{display:block;width:100%;height:100%;overflow:visible}
.ys span{position:absolute;right:100%;padding-right:8px;transform:translateY(50%);font-size:12px;line-height:1;color:var(--quiet);white-space:nowrap;font-variant-numeric:tabular-nums}
.xs{position:relative;height:20px;margin-left:var(--gutter);font-size:12px;color:var(--quiet)}
.xs span{position:absolute;top:4px;transform:translateX(-50%);white-space:nowrap;line-height:1.2}
.xs .first{transform:none}.xs .last{transform:translateX(-100%)}
svg path{fill:none;vector-effect:non-scaling-stroke}
.grid path{stroke:var(--rule);stroke-width:1}
.line{stroke:currentColor;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.thin{stroke-width:1.1}.dash{stroke-dasharray:5 4}.dot{stroke:currentColor;stroke-width:7;stroke-linecap:round}
path.area{fill:currentColor;fill-opacity:.13;stroke:none}path.area.solid{fill-opacity:.75}
.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}.c4{color:var(--c4)}.c5{color:var(--c5)}.c6{color:var(--c6)}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:14px}
.two{margin-bottom:14px}.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:5px 0 5px 18px;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap;vertical-align:top}
th{font-weight:500;color:var(--quiet);font-size:12.5px}tr:last-child td{border-bottom:0}
th:first-child,td:first-child{text-align:left;padding-left:0}
.left{text-align:left;white-space:normal;overflow-wrap:anywhere}
tr.sum td{font-weight:600}
td.name{max-width:320px;overflow:hidden;text-overflow:ellipsis}
.badtext{color:var(--bad);font-weight:600}
.lines{margin:0;padding:0;list-style:none}.lines li{padding:3px 0;overflow-wrap:anywhere}
details summary{cursor:pointer;color:var(--quiet)}
pre{margin:8px 0 0;white-space:pre-wrap;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:minmax(110px,max-content) 1fr;gap:5px 18px;margin:0;font-size:14px}dt{font-weight:600}dd{margin:0;color:var(--quiet)}
#cross{border-left:1px solid var(--ink);opacity:.55}
#when{position:absolute;top:0;transform:translateX(-50%);background:var(--ink);color:var(--page);font-size:12px;line-height:1.3;padding:1px 6px;border-radius:3px;white-space:nowrap;z-index:2}
footer{margin-top:44px;color:var(--quiet);font-size:13px}
[hidden]{display:none!important}
@media (max-width:600px){:root{--gutter:52px}main{padding:18px 14px 40px}h1{font-size:22px}.card{padding:10px 10px 8px}
.chart figcaption{padding-left:0}.tiles{grid-template-columns:repeat(2,1fr)}dl{grid-template-columns:1fr}dd{margin-bottom:8px}}
@media print{body{background:#fff;font-size:12px}main{max-width:none;padding:0}.chart,.tile,tr,h2{break-inside:avoid}h2{break-after:avoid}
#cross,#when{display:none}details{display:block}.card{border-color:#ccc}}
)css";

// A line under the pointer through all charts of the time axis, with the values there in the keys.
// The page says everything without it.
const std::string_view kScript = R"js(
(function () {
  'use strict';
  var data = JSON.parse(document.getElementById('data').textContent);
  var stack = document.getElementById('stack');
  var area = document.getElementById('before');
  var cross = document.getElementById('cross');
  var when = document.getElementById('when');
  var cells = Array.prototype.map.call(document.querySelectorAll('[data-live]'), function (cell) {
    var id = cell.getAttribute('data-live').split('.');
    return { cell: cell, chart: data.charts[id[0]], series: Number(id[1]) };
  });
  function digits(v) {
    return Math.abs(v) >= 100 ? v.toFixed(0) : String(Number(v.toPrecision(3)));
  }
  function scaled(v, base, names) {
    var i = 0;
    while (Math.abs(v) >= base) { if (i === names.length - 1) { break; } v /= base; i += 1; }
    return digits(v) + names[i];
  }
  function text(v, unit) {
    if (v === null) { return 'none'; }
    if (unit === 'ns') { return scaled(v, 1000, [' ns', ' \u00b5s', ' ms', ' s']); }
    if (unit === 'bytes') { return scaled(v, 1024, [' B', ' KiB', ' MiB', ' GiB', ' TiB']); }
    if (unit === 'cores') { return digits(v); }
    return v >= 1e6 ? scaled(v, 1000, ['', 'k', 'M', 'G']) : Math.round(v).toLocaleString('en-US');
  }
  function nearest(times, t) {
    var low = 0, high = times.length - 1, middle;
    while (high - low > 1) {
      middle = (low + high) >> 1;
      if (times[middle] > t) { high = middle; } else { low = middle; }
    }
    return Math.abs(times[high] - t) > Math.abs(times[low] - t) ? low : high;
  }
  function clock(s) {
    var d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
    function two(n) { return n > 9 ? String(n) : '0' + n; }
    var rest = s >= 60 ? two(Math.floor(s % 60)) : (s % 60).toFixed(1);
    if (d > 0) { return d + ' d ' + two(h) + ':' + two(m) + ':' + rest; }
    if (h > 0) { return h + ':' + two(m) + ':' + rest; }
    return m > 0 ? m + ':' + rest : rest + ' s';
  }
  function leave() {
    cross.hidden = true;
    when.hidden = true;
    cells.forEach(function (c) { c.cell.textContent = ''; });
  }
  function move(event) {
    var box = area.getBoundingClientRect();
    var x = (event.clientX - box.left) / box.width;
    if (0 > x || x > 1) { leave(); return; }
    var t = data.from + x * (data.to - data.from);
    cross.style.left = when.style.left = (100 * x) + '%';
    cross.hidden = false;
    when.hidden = false;
    when.textContent = clock(t);
    cells.forEach(function (c) {
      var times = data.times[c.chart.times];
      if (times.length === 0) { return; }
      c.cell.textContent = text(c.chart.values[c.series][nearest(times, t)], c.chart.unit);
    });
  }
  stack.addEventListener('pointermove', move);
  stack.addEventListener('pointerdown', move);
  stack.addEventListener('pointerleave', leave);
}());
)js";

}  // namespace spate::controller::report
