#include "reports/search_page_script.hpp"

namespace mgplan::reports {
namespace {

constexpr std::string_view kSearchStyle = R"(
.search { display: grid; grid-template-columns: minmax(0, 1fr) 23rem; column-gap: 1.5rem; } .search[hidden] { display: none; }
.search .main { grid-column: 1; } .search .table { grid-column: 1; }
.search .detail { grid-column: 2; grid-row: 1 / span 2; align-self: start; position: sticky; top: 1rem; max-height: calc(100vh - 2rem);
  overflow-y: auto; border: 1px solid var(--rule); border-radius: 6px; padding: .6rem .9rem; margin-top: 2rem; box-sizing: border-box; }
.detail h3 { font-size: 1rem; margin: 0 0 .2rem; overflow-wrap: anywhere; } .detail h4 { font-size: .9rem; margin: .7rem 0 .1rem; }
.detail table { width: 100%; font-size: 13px; } .detail td, .detail th { padding: .12rem .3rem; border: 0; }
.detail td:first-child, .detail th:first-child { padding-left: 0; text-align: left; white-space: normal; } .detail td:last-child, .detail th:last-child { padding-right: 0; text-align: right; }
.detail td.amount { width: 30%; text-align: left; } .detail td.amount i { display: inline-block; height: .7em; min-width: 1px; }
.detail code { display: block; font-size: 12px; overflow-wrap: anywhere; white-space: pre-wrap; background: var(--idle); padding: .35rem .5rem; border-radius: 4px; }
.detail tr.sum td { font-weight: 600; border-top: 1px solid var(--rule); }
fieldset.choice { border: 0; padding: 0; margin: .4rem 0; } fieldset.choice legend { float: left; margin-right: .8rem; padding: 0; color: var(--faint); }
#plot { display: block; width: 100%; height: 24rem; cursor: crosshair; border-radius: 4px; } #tip { z-index: 2; white-space: pre-line; }
#plot:focus-visible, button:focus-visible, select:focus-visible, input:focus-visible, .table:focus-visible, summary:focus-visible {
  outline: 2px solid var(--forward); outline-offset: 2px; }
.filters { display: flex; flex-wrap: wrap; gap: .4rem .7rem; align-items: end; margin: .8rem 0 .3rem; font-size: 13px; }
.filters label { display: flex; flex-direction: column; color: var(--faint); } .filters label.tick { flex-direction: row; gap: .3rem; align-items: center; color: var(--ink); }
.filters select, .filters input[type=number], button { font: inherit; color: var(--ink); background: var(--ground); border: 1px solid var(--rule);
  border-radius: 4px; padding: .2rem .4rem; } .filters input[type=number] { width: 5.5rem; } button { cursor: pointer; }
#shown { font-size: 13px; color: var(--faint); }
.table { overflow: auto; max-height: 34rem; } #families { width: 100%; font-size: 13px; } #families th, #families td { padding: .2rem .35rem; text-align: right; }
#families td.words, #families th.words { text-align: left; } #families thead th { position: sticky; top: 0; background: var(--ground); z-index: 1; padding: 0; }
#families thead button { border: 0; background: none; font-weight: 600; padding: .25rem .35rem; width: 100%; text-align: inherit; }
#families tbody tr { cursor: pointer; } #families tbody tr:hover td { background: var(--idle); } #families tr.chosen td { background: var(--idle); font-weight: 600; }
#families .pick { padding: 0 .35rem; min-width: 2.4rem; text-align: right; font-weight: inherit; background: none; } #families .narrow, .filters .narrow { display: none; }
#families .over { color: var(--limit); } #more { margin: .5rem 0; }
#families th.words { width: 99%; }
.why { list-style: none; padding: 0; margin: .6rem 0; } .why li { margin: 0 0 .8rem; } .why li > p { overflow-wrap: anywhere; }
.why .bar { display: flex; height: 1.1rem; border-radius: 3px; overflow: hidden; margin: .15rem 0; } .why .bar i { display: block; height: 100%; }
.reasons { width: 100%; } .reasons td, .reasons th { vertical-align: top; } .reasons td:last-child { white-space: normal; overflow-wrap: anywhere; }
.whole { border: 1px solid var(--rule); border-radius: 6px; margin: .4rem 0; } .whole summary { padding: .45rem .8rem; cursor: pointer; overflow-wrap: anywhere; }
.whole iframe { display: block; width: 100%; border: 0; border-top: 1px solid var(--rule); height: 80vh; }
@media (max-width: 1300px) { #families { font-size: 12px; } #families th, #families td { padding: .2rem .22rem; } #families thead button { padding: .25rem .22rem; }
  .search { grid-template-columns: minmax(0, 1fr) 20rem; column-gap: 1rem; } }
@media (max-width: 1000px) { .search { display: block; } .search .detail { position: static; max-height: none; margin: .8rem 0; } }
@media (max-width: 700px) { #plot { height: 18rem; } #families .wide { display: none; } #families .narrow { display: table-cell; white-space: normal; }
  .filters .narrow { display: flex; } }
)";

}  // namespace

std::string_view search_page_style() {
    return kSearchStyle;
}

}  // namespace mgplan::reports
