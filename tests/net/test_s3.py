# SPDX-License-Identifier: Apache-2.0
"""s3:// against a server that checks signatures as S3 does; `make fleet` has a real object store."""
import datetime
import hashlib
import hmac
import json
import re
import threading
import time
import urllib.parse

import pytest

import harness
from harness import ctl, eventually
from origin import MIB, LinkedCarton, as_expected, fault_bytes, lines_of
from served import Handler, Served
from zipwriter import Carton

ID, SECRET = 'AKIDEXAMPLE', 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY'


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Store(Served):
    """Objects of one bucket, in path style. `keys`: {id: (secret, token)}."""

    def __init__(self, objects):
        self.objects, self.keys = objects, {ID: (SECRET, None)}
        self.ahead = 0          # seconds of its clock before ours
        self.date = None        # or what it says
        self.explain = ''       # the body of a refusal; {} is the fault
        self.region = None      # of the bucket; a signature for another one is refused by
        self.elsewhere = lambda: (400, {}, '')
        self.payer = False      # it wants to be told that the requester pays
        self.seen, self.lock = [], threading.Lock()

    def __enter__(self):
        outer = self

        class Clock(Handler):
            def date_time_string(self, timestamp=None):
                return outer.date or super().date_time_string(time.time() + outer.ahead)
        self.handler = Clock
        super().__enter__()
        self.endpoint = self.url().rstrip('/')
        return self

    def fault(self, h):
        """What is wrong with the signature; the rules are those of AWS Signature Version 4."""
        found = re.fullmatch(r'AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?'
                             r'SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})',
                             h.headers.get('Authorization', ''))
        if not found:
            return 'no signature'
        who, date, region, names, signature = found.groups()
        if self.region not in (None, region):
            return 'another region'
        secret, token = self.keys.get(who, (None, None))
        if secret is None:
            return f'unknown key {who}'
        if h.headers.get_all('x-amz-content-sha256') != ['UNSIGNED-PAYLOAD']:
            return 'not one x-amz-content-sha256'
        if h.headers.get('x-amz-security-token') != token:
            return 'wrong token'
        names = names.split(';')
        if self.payer and (h.headers.get('x-amz-request-payer') != 'requester' or 'x-amz-request-payer' not in names):
            return 'AccessDenied'
        when = datetime.datetime.strptime(h.headers['x-amz-date'] + '+0000', '%Y%m%dT%H%M%SZ%z').timestamp()
        if date != h.headers['x-amz-date'][:8] or abs(when - time.time() - self.ahead) > 900:
            return 'RequestTimeTooSkewed'
        if token and 'x-amz-security-token' not in names:
            return 'the token is not signed'
        path, _, query = h.path.partition('?')
        if urllib.parse.quote(urllib.parse.unquote(path), safe='/-._~') != path:
            return f'not strictly encoded: {path}'
        request = '\n'.join([h.command, path, query] +
                            [f'{n}:{" ".join(h.headers[n].split())}' for n in names] +
                            ['', ';'.join(names), 'UNSIGNED-PAYLOAD'])
        scope = f'{date}/{region}/s3/aws4_request'
        text = '\n'.join(['AWS4-HMAC-SHA256', h.headers['x-amz-date'], scope,
                          hashlib.sha256(request.encode()).hexdigest()])
        key = ('AWS4' + secret).encode()
        for part in (date, region, 's3', 'aws4_request'):
            key = mac(key, part)
        return None if mac(key, text).hex() == signature else 'wrong signature'

    def answer(self, h):
        fault = self.fault(h)
        path = urllib.parse.unquote(h.path)
        with self.lock:
            self.seen.append((path, fault, h.headers.get('Range')))
        data = self.objects.get(path.removeprefix('/bucket/'))
        status = 403 if fault else 404 if data is None else 206 if h.headers.get('Range') else 200
        body = data if status < 300 else self.explain.format(fault).encode()
        headers = {}
        if fault == 'another region':
            status, headers, body = self.elsewhere()
            body = body.encode()
        h.send_response(status)
        for name, value in headers.items():
            h.send_header(name, value)
        if status == 206:
            a, b = re.fullmatch(r'bytes=(\d*)-(\d*)', h.headers['Range']).groups()
            first = int(a) if a else max(0, len(data) - int(b))
            last = min(int(b), len(data) - 1) if a else len(data) - 1
            h.send_header('Content-Range', f'bytes {first}-{last}/{len(data)}')
            body = data[first:last + 1]
        h.send_header('ETag', '"0123456789abcdef-3"')
        h.send_header('Accept-Ranges', 'bytes')
        h.send_header('Content-Length', str(len(body)))
        h.end_headers()
        if h.command == 'GET':
            h.wfile.write(body)

    def env(self, **more):
        return {'AWS_ENDPOINT_URL': self.endpoint, 'AWS_ACCESS_KEY_ID': ID,
                'AWS_SECRET_ACCESS_KEY': SECRET, 'AWS_REGION': 'eu-central-1'} | more


def a_carton(tmp_path, **kw):
    c = Carton(method='stored').add('model/x', fault_bytes(20 * MIB, seed=1))
    return c, c.write(tmp_path / 'm.carton').read_bytes()


@pytest.mark.parametrize('key', ['m.carton', 'a b/c+d=e&(f)*!@$,;:\'[x]~.carton', 'ä/100%/m.carton'])
def test_carton_in_a_bucket(mount, cache, tmp_path, key):
    c, data = a_carton(tmp_path)
    with Store({key: data}) as s:
        with mount(f's3://bucket/{key}', *cache.options, env=s.env()) as m:
            as_expected(m, c)
    assert s.seen and not [x for x in s.seen if x[1]]
    assert [(_, _, r) for _, _, r in s.seen if not r] == []


def test_wrong_and_missing_keys(cache, tmp_path):
    _, data = a_carton(tmp_path)
    with Store({'m.carton': data}) as s:
        p = ctl('hash', 's3://bucket/m.carton', cache.flag, env=s.env(AWS_SECRET_ACCESS_KEY='no'))
        assert p.returncode == 1 and 'status 403' in p.stderr
        p = ctl('hash', 's3://bucket/m.carton', cache.flag, env={'AWS_ENDPOINT_URL': s.endpoint})
        assert p.returncode == 1 and 'requests are not signed' in p.stderr
        assert 'wrong signature' in {f for _, f, _ in s.seen} and SECRET not in p.stderr


@pytest.mark.parametrize('ahead', [-4000, 4000, 3 * 86400])
def test_clock(mount_fg, cache, tmp_path, ahead):
    """It is corrected by the Date of the first refusal, also of a HEAD; said once."""
    c, data = a_carton(tmp_path)
    with Store({'m.carton': data}) as s:
        s.ahead = ahead
        with mount_fg('s3://bucket/m.carton', *cache.options, env=s.env()) as m:
            as_expected(m, c)
            way = 'behind' if ahead > 0 else 'ahead of'
            assert len(lines_of(m.log(), f' s {way} that of S3')) == 1
        assert [f for _, f, _ in s.seen].count('RequestTimeTooSkewed') == 1 < len(s.seen)


def test_clock_that_runs_away(cache, tmp_path):
    """Each request is signed anew once at most, whatever the server says."""
    _, data = a_carton(tmp_path)
    with Store({'m.carton': data}) as s:
        s.fault = lambda h: (setattr(s, 'ahead', s.ahead + 5000), 'RequestTimeTooSkewed')[1]
        p = ctl('hash', 's3://bucket/m.carton', cache.flag, env=s.env())
        assert p.returncode == 1 and 'status 403' in p.stderr
        assert len(s.seen) == 2


@pytest.mark.parametrize('year', [1700, 10000, 99999999])
def test_clock_that_nobody_has(cache, tmp_path, year):
    """It is not taken over: nothing could be signed by it any more."""
    _, data = a_carton(tmp_path)
    with Store({'m.carton': data}) as s:
        s.date = f'Fri, 01 Jan {year} 00:00:00 GMT'
        s.fault = lambda h: 'RequestTimeTooSkewed'
        p = ctl('hash', 's3://bucket/m.carton', cache.flag, env=s.env())
        assert p.returncode == 1 and 'status 403' in p.stderr
        assert len(s.seen) == 1


ERROR = '<?xml version="1.0"?>\n<Error><Code>{}</Code><Message>not &lt;you&gt; &amp;&#65;</Message></Error>'


@pytest.mark.parametrize('text, says', [
    (ERROR, ': wrong signature: not <you> &&#65;'), ('<Error><Code>{}', ': wrong signature'),
    ('<Error><Message>\x1b[2J\n{}<', ': \\x1b[2J\\x0awrong signature'), ('<Code>{}</Code>', ''),
    ('<Error><Code>' + 'x' * 40000, ': ' + 'x' * 63), ('x' * 40000 + ERROR, ''), ('', ''), ('<Error>', ''),
    ('<Error><Code></Code><Message>m', ': m')],
    ids=['good', 'cut', 'control', 'bare', 'long', 'late', 'empty', 'none', 'message'])
def test_what_s3_says(cache, tmp_path, text, says):
    _, data = a_carton(tmp_path)
    with Store({'m.carton': data}) as s:
        s.explain = text
        p = ctl('hash', 's3://bucket/m.carton', cache.flag, env=s.env(AWS_SECRET_ACCESS_KEY='no'))
        assert p.returncode == 1
        assert [x for x in p.stderr.splitlines() if x.endswith('status 403' + says)], p.stderr
        assert len(s.seen) == 1


# ---- regions ----

BODY = '<?xml version="1.0"?><Error><Code>{}</Code><Message>x</Message>{}<Endpoint>127.0.0.1:1</Endpoint></Error>'
REAL = 'eu-west-1'
ELSEWHERE = {
    '301': (301, {'x-amz-bucket-region': REAL}, BODY.format('PermanentRedirect', '')),
    '301 and a Location': (301, {'x-amz-bucket-region': REAL, 'Location': 'http://127.0.0.1:1/bucket/m.carton'}, ''),
    '400': (400, {}, BODY.format('AuthorizationHeaderMalformed', f'<Region>{REAL}</Region>')),
    '400 with a header': (400, {'x-amz-bucket-region': REAL}, BODY.format('AuthorizationHeaderMalformed', '')),
}


@pytest.mark.parametrize('how', ELSEWHERE)
def test_another_region(mount_fg, cache, tmp_path, how):
    """A bucket is asked in its region, which is said once, wherever a Location or the body says that it is."""
    c, data = a_carton(tmp_path)
    with Store({'m.carton': data}) as s:
        s.region, s.elsewhere = REAL, lambda: ELSEWHERE[how]
        with mount_fg('s3://bucket/m.carton', *cache.options, env=s.env()) as m:
            as_expected(m, c)
            said, = lines_of(m.log(), 'region')
        assert f'the bucket bucket is in the region {REAL}, and not in eu-central-1' in said and f'AWS_REGION={REAL}' in said
        assert [fault for _, fault, _ in s.seen].count('another region') == 1, 'all later requests begin there'


@pytest.mark.parametrize('region', ['x.evil', 'evil/', '@evil', 'evil:1', 'x' * 33, 'EU', '', '-\tx', '&lt;', '%2e'])
def test_what_is_no_region(cache, tmp_path, region):
    """It would be a part of the name of the host that gets the signature."""
    _, data = a_carton(tmp_path)
    for elsewhere in ((301, {'x-amz-bucket-region': region}, BODY.format('PermanentRedirect', '')),
                      (400, {}, BODY.format('AuthorizationHeaderMalformed', f'<Region>{region}</Region>'))):
        with Store({'m.carton': data}) as s:
            s.region, s.elsewhere = REAL, lambda: elsewhere
            p = ctl('hash', cache.flag, 's3://bucket/m.carton', env=s.env())
            assert p.returncode == 1 and 'in the region' not in p.stderr, p.stderr
            assert all(fault == 'another region' for _, fault, _ in s.seen)


def test_region_that_moves_on(cache, tmp_path):
    """A store that sends on and on is followed once for each request."""
    _, data = a_carton(tmp_path)
    with Store({'m.carton': data}) as s:
        s.region, s.elsewhere = 'nowhere', lambda: (301, {'x-amz-bucket-region': f'r-{len(s.seen)}'}, '')
        p = ctl('hash', cache.flag, 's3://bucket/m.carton', env=s.env())
        assert p.returncode == 1 and len(s.seen) <= 4, (p.stderr, s.seen)


def test_requester_pays(cache, tmp_path):
    """Who asks says so, in what is signed, when the user has said so, and only then."""
    _, data = a_carton(tmp_path)
    with Store({'m.carton': data}) as s:
        s.payer = True
        assert ctl('hash', cache.flag, 's3://bucket/m.carton', env=s.env()).returncode == 1
        s.keys = {ID: (SECRET, 'token')}
        p = ctl('hash', cache.flag, '--requester-pays', 's3://bucket/m.carton', env=s.env(AWS_SESSION_TOKEN='token'))
        assert p.returncode == 0, p.stderr


def home(tmp_path, **files):
    where = tmp_path / 'home'
    (where / '.aws').mkdir(parents=True)
    for name, text in files.items():
        (where / '.aws' / name).write_text(text)
    return {'HOME': str(where)}


@pytest.mark.parametrize('where', ['credentials', 'config', 'process', 'environment'])
def test_where_keys_are(cache, tmp_path, where):
    """With a session token, from each place that is documented."""
    _, data = a_carton(tmp_path)
    keys = f'aws_access_key_id = {ID}\naws_secret_access_key={SECRET}\naws_session_token = t/+=\n'
    output = json.dumps({'Version': 1, 'AccessKeyId': ID, 'SecretAccessKey': SECRET,
                         'SessionToken': 't/+=', 'Expiration': '2199-01-01T00:00:00Z'})
    script = tmp_path / 'keys.json'
    script.write_text(output)
    env = {'environment': dict(AWS_ACCESS_KEY_ID=ID, AWS_SECRET_ACCESS_KEY=SECRET,
                               AWS_SESSION_TOKEN='t/+='),
           'credentials': home(tmp_path, credentials='[default]\naws_access_key_id=no\n'
                               f'# x\n[me]\n{keys}', config='') | dict(AWS_PROFILE='me'),
           'config': home(tmp_path / 'c', config=f'[profile me]\n{keys}[default]\nregion=x\n')
           | dict(AWS_PROFILE='me'),
           'process': home(tmp_path / 'p', config='[default]\nregion = r\n'
                           f'credential_process = cat "{script}"\n')}[where]
    with Store({'m.carton': data}) as s:
        s.keys = {ID: (SECRET, 't/+=')}
        p = ctl('hash', 's3://bucket/m.carton', cache.flag,
                env=env | {'AWS_ENDPOINT_URL_S3': s.endpoint, 'AWS_ENDPOINT_URL': 'http://x.invalid'})
        assert p.returncode == 0, (p.stderr, s.seen)
        assert not [x for x in s.seen if x[1]]


NO_MALLOC = '''
#include <stdlib.h>
#include <unistd.h>
void *__libc_malloc(size_t n);
static pid_t first;
__attribute__((constructor)) static void begin(void) { first = getpid(); }
void *malloc(size_t n)
{
	if (first && getpid() != first)
		abort();
	return __libc_malloc(n);
}
'''


@pytest.mark.parametrize('end', ['\n', '\r\n', ' \n', '\t'])
def test_secret_from_a_file_by_a_shell(cache, tmp_path, end):
    """$(printf ...) and secrets of Kubernetes keep what is behind a value: no key has that."""
    _, data = a_carton(tmp_path)
    with Store({'m.carton': data}) as s:
        s.keys = {ID: (SECRET, 'token')}
        env = s.env(AWS_ACCESS_KEY_ID=ID + end, AWS_SECRET_ACCESS_KEY=SECRET + end, AWS_SESSION_TOKEN='token' + end,
                    AWS_REGION=REAL + end)
        p = ctl('hash', cache.flag, 's3://bucket/m.carton', env=env)
        assert p.returncode == 0, p.stderr


@pytest.mark.needs_plain_build      # a sanitizer has a malloc of its own
@pytest.mark.parametrize('config', [f'aws_access_key_id = {ID}\naws_secret_access_key={SECRET}\n',
                                    'credential_process = exec cat "{0}"\n'])
def test_process_allocates_nothing(cache, tmp_path, config):
    """It is forked by a program that may have other threads, whose locks it would wait for."""
    _, data = a_carton(tmp_path)
    (tmp_path / 'keys').write_text(f'{{"AccessKeyId": "{ID}", "SecretAccessKey": "{SECRET}"}}')
    (tmp_path / 'x.c').write_text(NO_MALLOC)
    p = harness.run('cc', '-shared', '-fPIC', '-o', tmp_path / 'x.so', tmp_path / 'x.c')
    assert p.returncode == 0, p.stderr
    env = home(tmp_path, config='[default]\n' + config.format(tmp_path / 'keys'))
    with Store({'m.carton': data}) as s:
        p = ctl('hash', 's3://bucket/m.carton', cache.flag,
                env=env | {'AWS_ENDPOINT_URL': s.endpoint, 'LD_PRELOAD': str(tmp_path / 'x.so')})
        assert p.returncode == 0 and not [x for x in s.seen if x[1]], (p.stderr, s.seen)


@pytest.mark.parametrize('output', ['', 'no json', '{"Version": 1}', '{"AccessKeyId": "x"'])
def test_process_that_fails(cache, tmp_path, output):
    env = home(tmp_path, config=f"[default]\ncredential_process = echo '{output}'\n")
    p = ctl('hash', 's3://bucket/m.carton', cache.flag, env=env)
    assert p.returncode == 1 and 'writes no JSON with AccessKeyId' in p.stderr


def test_keys_are_renewed(mount, cache, tmp_path):
    """Before they expire, by the command, while the daemon is confined."""
    c = Carton(method='stored')
    for i, name in enumerate('xyz'):
        c.add(f'model/{name}', fault_bytes(9 * MIB, seed=i))
    data = c.write(tmp_path / 'm.carton').read_bytes()
    script = tmp_path / 'keys'
    count = tmp_path / 'count'
    script.write_text(f'''#!/bin/sh
echo x >>{count}
n=$(wc -l <{count})
# the first are about to expire
expiry=2199-01-01T00:00:00Z
[ "$n" = 1 ] && expiry=$(date -u -d '+1 minute' +%Y-%m-%dT%H:%M:%SZ)
echo "{{\\"Version\\":1,\\"AccessKeyId\\":\\"key$n\\",\\"SecretAccessKey\\":\\"s$n\\",\\"Expiration\\":\\"$expiry\\"}}"
''')
    script.chmod(0o755)
    env = home(tmp_path, config=f'[default]\ncredential_process = {script}\n')
    with Store({'m.carton': data}) as s:
        s.keys = {f'key{n}': (f's{n}', None) for n in (1, 2)}
        with mount('s3://bucket/m.carton', *cache.options,
                   env=env | {'AWS_ENDPOINT_URL': s.endpoint}) as m:
            m.sha('model/y')
            eventually('other keys are loaded', lambda: count.read_text() == 'x\nx\n')
            m.sha('model/z')
            del s.keys['key1']
            as_expected(m, c)
        assert count.read_text() == 'x\nx\n' and not [x for x in s.seen if x[1]]


def test_links_to_a_bucket(cache, tmp_path):
    """Of the same bucket only, and only from a carton of that bucket."""
    for seed, (url, good) in enumerate((('s3://bucket/blob', True), ('s3://other/blob', False))):
        data = fault_bytes(9 * MIB, seed=seed)
        c = LinkedCarton().link('model/x', data, url)
        path = c.write(tmp_path / 'm.carton')
        with Store({'m.carton': path.read_bytes(), 'blob': data}) as s:
            p = ctl('fetch', 's3://bucket/m.carton', cache.flag, env=s.env())
            assert (p.returncode == 0) == good, p.stderr
            assert good or 'LINKS may lead to the bucket of an s3 carton only' in p.stderr
            p = ctl('fetch', path, f'--cache-dir={tmp_path}/c', '--private-links', env=s.env())
            assert p.returncode == 1


def test_mirror_in_a_bucket(nginx, mount, cache, tmp_path):
    data = fault_bytes(9 * MIB, seed=3)
    c = LinkedCarton().link('model/x', data, nginx.put('blob', data))
    path = c.write(tmp_path / 'm.carton')
    nginx.clear()
    with Store({f'models/{c.sum(data)}': data}) as s:
        with mount(path, '-o', 'mirror=s3://bucket/models/{sha256}', '-o', 'private_links',
                   *cache.options, env=s.env()) as m:
            as_expected(m, c)
        assert not nginx.requests() and not [x for x in s.seen if x[1]]


@pytest.mark.parametrize('url', ['s3://b', 's3://bucket', 's3://bucket/', 's3://Bu_cket!/x',
                                 's3://bucket/a/../b'])
def test_bad_urls(cache, url):
    p = ctl('hash', url, cache.flag, env=dict(AWS_ACCESS_KEY_ID=ID, AWS_SECRET_ACCESS_KEY=SECRET))
    assert p.returncode == 1 and ('s3://BUCKET/KEY' in p.stderr or 'component' in p.stderr)
