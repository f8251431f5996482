"""The style sheet and the script of the page of an exploration."""

from __future__ import annotations

from lowwater.display.palette import colours_css

CSS = (
    "".join(colours_css(f"lw-explore-{theme}", theme) for theme in ("auto", "light", "dark"))
    + """
.lw-explore{max-width:1240px;margin:0 auto;color:var(--lw-ink);background:var(--lw-paper);
padding:10px;font-size:13px;line-height:1.4;box-sizing:border-box}
.lw-explore *{box-sizing:border-box}
.lw-x-title{font-weight:600;font-size:15px}
.lw-x-sliders{display:grid;grid-template-columns:repeat(auto-fit,minmax(240px,1fr));gap:6px 18px;
position:sticky;top:0;background:var(--lw-paper);padding:6px 0;z-index:1}
.lw-x-sliders label{display:grid;grid-template-columns:auto 1fr;gap:0 8px;align-items:center}
.lw-x-sliders label[hidden]{display:none}
.lw-x-sliders output{grid-column:1/3;font-weight:600;overflow-wrap:anywhere}
.lw-x-sliders input{width:100%;min-width:60px;accent-color:var(--lw-ontime)}
.lw-explore :focus-visible{outline:2px solid var(--lw-ontime);outline-offset:2px}
.lw-x-numbers{display:flex;flex-wrap:wrap;gap:2px 16px;padding:4px 0}
.lw-x-notes{color:var(--lw-quiet);margin:0;padding:0 0 0 16px;font-size:12px}
.lw-x-body{display:grid;grid-template-columns:minmax(0,1fr);gap:4px 24px}
@media (min-width:1100px){.lw-x-body{grid-template-columns:minmax(0,800px) minmax(0,1fr)}}
.lw-x-body>div{min-width:0}
.lw-x-parts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr));
gap:10px 24px}
.lw-explore section{min-width:0}
.lw-explore h4{margin:10px 0 4px;font-size:13px}
.lw-explore p{margin:2px 0;color:var(--lw-quiet);font-size:12px}
.lw-explore pre{margin:0 0 4px;padding:8px;overflow-x:auto;border:1px solid var(--lw-faint);
background:none;color:inherit}
.lw-explore button{font:inherit;color:inherit;background:none;border:1px solid var(--lw-quiet);
border-radius:3px;padding:1px 10px;cursor:pointer}
.lw-x-scroll{overflow-x:auto}
.lw-explore table{border-collapse:collapse;font-size:12px;white-space:nowrap;width:auto;margin:0}
.lw-explore th,.lw-explore td{text-align:left;padding:1px 10px 1px 0;
border-bottom:1px solid var(--lw-faint);color:inherit;background:none}
.lw-x-curve{width:100%;max-width:520px;height:auto}
.lw-x-curve text{fill:var(--lw-quiet);font-size:10px}
.lw-x-curve .g{stroke:var(--lw-faint);fill:none}
.lw-x-curve .z{stroke:var(--lw-quiet);stroke-dasharray:3 3;fill:none}
.lw-x-curve .c{stroke:var(--lw-mark);stroke-width:2.5;fill:none}
""".replace("\n", "")
)

SCRIPT = """\
(function(){document.querySelectorAll('[data-lowwater="ID"]').forEach(function(root){
if(root.dataset.ready)return;root.dataset.ready='1';
var data=DATA,pool=data.pool,inputs=[].slice.call(root.querySelectorAll('.lw-x-sliders input'));
function $(selector){return root.querySelector(selector)}
function texts(runs){var found=[];for(var i=0;i<runs.length;i+=2)
for(var j=0;j<runs[i+1];j++)found.push(pool[runs[i]+j]);return found}
var picture=root.querySelectorAll('.lw-x-picture svg')[1].querySelector('g');
var numbers=root.querySelectorAll('.lw-x-numbers b'),code=$('code'),copy=$('button');
function curve(shares){var n=shares.length,names=data.latencies,last=n-1,zero=-1,out='';
function x(i){return 34+356*i/Math.max(1,last)}function y(s){return 172-160*s/1000}
for(var s=0;s<=1000;s+=250){out+='<path class="g" d="M34 '+y(s)+'H390"/>'+
'<text x="30" y="'+(y(s)+3)+'" text-anchor="end">'+s/10+'%</text>'}
for(var i=0;i<n;i++)if(names[i].charAt(0)!=='-'){zero=i;break}
if(zero>0)out+='<path class="z" d="M'+x(zero)+' 12V172"/>';
[0,Math.round(last/2),last].forEach(function(i,k){out+='<text x="'+x(i)+'" y="188" text-anchor="'+
['start','middle','end'][k]+'">'+names[i]+'</text>'});
out+='<path class="c" d="M'+shares.map(function(s,i){return x(i)+' '+y(s)}).join('L')+'"/>';
$('.lw-x-curve').innerHTML=out}
function show(){var at=0;inputs.forEach(function(input,i){at=at*data.axes[i]+ +input.value;
var value=JSON.parse(input.dataset.values)[+input.value];
input.setAttribute('aria-valuetext',value);input.parentNode.querySelector('output').textContent=value});
var frame=data.frames[at];picture.innerHTML=texts(frame[0]).join('');
$('.lw-x-panes tbody').innerHTML=texts(frame[1]).join('');
$('.lw-x-dropped tbody').innerHTML=texts(frame[2]).join('')||'<tr><td colspan="4">none</td></tr>';
texts(frame[3]).forEach(function(text,i){numbers[i].innerHTML=text});
code.innerHTML=texts(frame[4])[0];curve(frame[5]);
$('.lw-x-notes').innerHTML=texts(frame[6]).join('')}
inputs.forEach(function(input){input.addEventListener('input',show)});
copy.addEventListener('click',function(){var text=code.textContent;
function done(){copy.textContent='Copied';setTimeout(function(){copy.textContent='Copy'},1500)}
function select(){var range=document.createRange();range.selectNodeContents(code);
var chosen=getSelection();chosen.removeAllRanges();chosen.addRange(range)}
if(navigator.clipboard)navigator.clipboard.writeText(text).then(done,select);else select()});
show()})})();"""
