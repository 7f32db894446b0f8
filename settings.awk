# What a stamp of make holds of configs/settings.yaml: the section `key`, without comments and without the settings in
# `given`, which flags override. Keys may be quoted, and a section may be written in braces on its own lines. Where the
# two outer levels are written otherwise (all in braces, aliases), the stamp holds the whole file: then every change of
# the file counts, rather than none.

BEGIN { split(given, names, " "); for (i in names) is_given[names[i]] = 1 }

# The key that a line begins with; empty where it begins with none. `rest` is what follows.
function key_of(text, name) {
    sub(/^ +/, "", text)
    if (!match(text, /^("[^"]*"|'[^']*'|[^ "'{}\[\],&*?:-][^"'{}\[\],&*?:]*) *:( |$)/)) return ""
    name = substr(text, 1, RLENGTH); rest = substr(text, RLENGTH + 1)
    sub(/ *: *$/, "", name); gsub(/^["']|["']$/, "", name); sub(/^ *(#.*)?$/, "", rest)
    return name
}

{ sub(/\r$/, "") }
match($0, / +#/) && substr($0, 1, RSTART) !~ /["']/ { $0 = substr($0, 1, RSTART - 1) }
/^[ \t]*(#|$)/ || /^---/ { next }
{
    all = all $0 "\n"
    if ($0 ~ /(: *[&*]|<<)/) is_plain = "no"
    match($0, /^ */); depth = RLENGTH
}
depth == 0 { if (key_of($0) == "" || rest != "") is_plain = "no"; outer = inner = 0; on = 0; next }
!outer { outer = depth }
depth < outer { is_plain = "no" }
depth == outer {
    if ((name = key_of($0)) == "" && !on) is_plain = "no"
    if (name != "") on = (name == key)
    inner = 0; skip = 0
}
on && depth > outer {
    if (!inner) inner = depth
    if (depth <= inner && (name = key_of($0)) != "") { gsub(/-/, "_", name); skip = name in is_given }
}
on && !skip { section = section $0 "\n" }
END { printf "%s", is_plain == "no" ? all : section }
