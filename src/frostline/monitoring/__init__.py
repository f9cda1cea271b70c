"""Monitoring of encoders at work: baselines of normal text, scores of new text, alarms when text departs from normal.

One text passes through four types on its way through the monitor:

    model in use ──hooks──▶ HiddenStates ──profile──▶ Profile ──judge──▶ Assessment ──reasons──▶ Scores

    HiddenStates  hooks     states of all tokens at up to four depths; pass_buffer puts small passes together
    Profile       profile   some thousand numbers per text: means of tokens, concentration, passages, token probes
    Assessment    judge     standard normal scores of the parts, one score and one p-value per text, on the device
    Scores        reasons   the same in numpy, with reasons in words: what ``score`` and ``watch`` return;
                            ``surface`` has the plain facts among them: script, markup, repetition, length

``learning`` takes reference texts and broken copies of them the same way as far as Profile, and makes the judges of a
``baseline`` from them; ``scorer`` and ``watch`` take new texts all the way.
"""
