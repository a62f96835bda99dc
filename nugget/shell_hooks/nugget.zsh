# Records this shell for Nugget: each command with exit code, duration and folder, as two lines of JSON in
#   ${AISH_LOG_DIR:-~/.local/share/aish/logs}/<session>/events.jsonl
# Output is recorded only of what you run as `logged COMMAND...`. A command that begins with a space is not recorded,
# nor one that fits a pattern of NUGGET_SHELL_IGNORE (patterns with `:` between). `NUGGET_SHELL_OFF=1` pauses it.

if [[ -o interactive && -z ${__nugget_dir-} ]]; then
    zmodload zsh/datetime
    autoload -Uz add-zsh-hook
    typeset -g __nugget_ignore_default='pass *:gpg *:vault *:ssh-keygen *:*--password*:*passwd*:*PASSWORD=*:*_TOKEN=*:*_SECRET=*:*_KEY=*'
    typeset -g __nugget_session __nugget_dir __nugget_command='' __nugget_folder='' __nugget_began='' __nugget_streams=''
    strftime -s __nugget_session 'zsh-%Y%m%d-%H%M%S' $EPOCHSECONDS
    __nugget_session+="-$$"
    __nugget_dir="${AISH_LOG_DIR:-$HOME/.local/share/aish/logs}/$__nugget_session"

    __nugget_now() {
        local -F now=$EPOCHREALTIME
        printf -v REPLY '%.0f' $((now * 1000))
    }

    __nugget_json() {
        emulate -L zsh
        local text=$1 char
        local -i code
        text=${text//\\/\\\\}
        text=${text//\"/\\\"}
        text=${text//$'\n'/\\n}
        text=${text//$'\t'/\\t}
        text=${text//$'\r'/\\r}
        if [[ $text == *[[:cntrl:]]* ]]; then
            for code in {1..31}; do
                char=${(#)code}
                [[ $text == *"$char"* ]] && text=${text//"$char"/$(printf '\\u%04x' $code)}
            done
        fi
        REPLY=$text
    }

    __nugget_is_ignored() {
        emulate -L zsh
        local pattern
        [[ $1 == [[:space:]]* || -n ${NUGGET_SHELL_OFF-} ]] && return 0
        for pattern in ${(s.:.)${NUGGET_SHELL_IGNORE-$__nugget_ignore_default}}; do
            [[ $1 == ${~pattern} ]] && return 0
        done
        return 1
    }

    __nugget_preexec() {
        emulate -L zsh
        __nugget_began='' __nugget_streams=''
        [[ -z $1 ]] || __nugget_is_ignored "$1" && return 0
        local REPLY
        __nugget_now
        __nugget_command=$1 __nugget_folder=$PWD __nugget_began=$REPLY
    }

    __nugget_precmd() {
        local code=$? REPLY text folder now
        emulate -L zsh
        if [[ -n $__nugget_began ]] && __nugget_has_files events.jsonl; then
            __nugget_json "${__nugget_command#logged }"; text=$REPLY
            __nugget_json "$__nugget_folder"; folder=$REPLY
            __nugget_now; now=$REPLY
            printf '{"ts_ms":%s,"session_id":"%s","kind":"command.start","data":{"cmd":"%s","cwd":"%s"}}\n{"ts_ms":%s,"session_id":"%s","kind":"command.end","data":{"exit":%s,"duration_ms":%s%s}}\n' \
                "$__nugget_began" "$__nugget_session" "$text" "$folder" \
                "$now" "$__nugget_session" "$code" "$((now - __nugget_began))" "$__nugget_streams" \
                2>/dev/null >>"$__nugget_dir/events.jsonl"
        fi
        __nugget_began=''
        return $code
    }

    # Makes those of the session's files that are not there yet, for nobody else to read.
    __nugget_has_files() {
        emulate -L zsh
        local name
        for name in "$@"; do
            [[ -f $__nugget_dir/$name ]] || (umask 077; mkdir -p -- "$__nugget_dir" && : >>"$__nugget_dir/$name") 2>/dev/null || return 1
        done
    }

    # logged COMMAND...: run a command and keep a copy of what it prints.
    logged() {
        if [[ -n ${NUGGET_SHELL_OFF-} ]] || ! __nugget_has_files stdout.log stderr.log; then
            "$@"
            return
        fi
        local out_file="$__nugget_dir/stdout.log" err_file="$__nugget_dir/stderr.log" out_from err_from code
        out_from=$(($(wc -c <"$out_file")))
        err_from=$(($(wc -c <"$err_file")))
        # Of a group zsh waits for what it is copied to.
        { "$@" } > >(exec tee -a -- "$out_file") 2> >(exec tee -a -- "$err_file" >&2)
        code=$?
        __nugget_streams=",\"streams\":{\"stdout\":[$out_from,$(($(wc -c <"$out_file")))],\"stderr\":[$err_from,$(($(wc -c <"$err_file")))]}"
        return $code
    }

    add-zsh-hook preexec __nugget_preexec
    precmd_functions=(__nugget_precmd ${precmd_functions[@]:#__nugget_precmd})
fi
